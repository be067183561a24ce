"""An alert as received, and an incident: one decision about one attempt, with its outcome."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainwarden.identity import AttemptKey, InvalidAttemptKey, InvalidRunId, check_run_id
from trainwarden.record.clock import to_iso

MODES = ("crash", "stall", "timeout", "success")
WATCHDOG = "TrainWatchdog"
# In the place of an alert, of incidents that are about several runs: their `run_id` is empty.
STORM, WAITING_RUNS = "storm", "waiting runs"


class State(str, enum.Enum):
    """The state of an incident. Open ones are continued after a restart of the remediator."""

    PROPOSED = "PROPOSED"  # decided to restart; nothing done yet
    CAPTURING = "CAPTURING"  # the run shows where its ranks stand, before it is ended
    PREPARING = "PREPARING"  # the call that ends the attempt goes out, or has been answered
    IN_DOUBT = "IN_DOUBT"  # it is unknown whether that call took effect
    PREPARED = "PREPARED"  # the attempt has ended, the next start is held
    COMMITTED = "COMMITTED"  # the hold is the remediator's, which alone releases it
    VERIFYING = "VERIFYING"  # started; waiting for the step to pass the old high-water mark
    DONE = "DONE"  # recovered
    FAILED = "FAILED"  # started, but it did not recover
    ADOPTED = "ADOPTED"  # a user or the scheduler restarted, ended or finished the job
    ESCALATED = "ESCALATED"  # a person is paged
    SUPPRESSED = "SUPPRESSED"  # decided to do nothing, with the reason


OPEN_STATES = (
    State.PROPOSED,
    State.CAPTURING,
    State.PREPARING,
    State.IN_DOUBT,
    State.PREPARED,
    State.COMMITTED,
    State.VERIFYING,
)


class Action(str, enum.Enum):
    """The decision."""

    RESTART = "restart"
    RELEASE = "release"  # give a start that a call of ours has held after all
    NONE = "none"
    ESCALATE = "escalate"


def parse_key(text: str) -> AttemptKey | None:
    """Return the attempt key; None where the text is none."""
    try:
        return AttemptKey.parse(text)
    except InvalidAttemptKey:
        return None


def clean(text: object, limit: int = 200) -> str:
    """Return one printable line of at most `limit` characters, for text from labels and programs."""
    line = "".join(char if char.isprintable() else " " for char in str(text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True)
class Alert:
    """A firing alert that asks for remediation. `starts_at` is Unix time, None where it was unreadable."""

    labels: Mapping[str, str]
    starts_at: float | None

    @property
    def key(self) -> str:
        """Hash of the label set: equal for one alert by webhook and by poll; several incidents may have the same."""
        canonical = json.dumps(sorted(self.labels.items()))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def label(self, name: str) -> str | None:
        """Return a label as one clean line; None where it is absent or empty, which is the same to Prometheus."""
        value = self.labels.get(name)
        return clean(value, 128) if value else None

    @property
    def cluster(self) -> str:
        """The cluster that it names; empty where it names none."""
        return self.label("cluster") or ""

    def in_cluster(self, cluster: str) -> Alert:
        """Return the same alert with the label `cluster`, where it has none: it is of the remediator's own cluster."""
        return (
            self
            if self.labels.get("cluster") or not cluster
            else replace(self, labels={**self.labels, "cluster": cluster})
        )

    def is_of_cluster(self, cluster: str) -> bool:
        """Return whether the alert is of this cluster; one without the label, or any where `cluster` is empty, is."""
        named = self.labels.get("cluster")
        return not named or not cluster or named == cluster

    @property
    def is_watchdog(self) -> bool:
        """Whether it is the alert that always fires, whose arrival proves that alerts are delivered."""
        return self.labels.get("alertname") == WATCHDOG

    @property
    def remediable(self) -> bool:
        """Whether its rule requests remediation."""
        return self.labels.get("remediate") == "true"

    @property
    def run_id(self) -> str | None:
        """The run it is about; None unless it is a well-formed run id, and so safe in a query or a path."""
        try:
            return check_run_id(self.labels.get("run_id"))
        except InvalidRunId:
            return None

    @property
    def attempt(self) -> int | None:
        """The attempt it is about."""
        value = self.labels.get("attempt", "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None

    @property
    def mode(self) -> str | None:
        """The failure mode; None where it is no known one."""
        value = self.labels.get("failure_mode")
        return value if value in MODES else None


@dataclass(frozen=True)
class Incident:
    """One row: what was decided about one attempt. Times are Unix seconds; None is unknown or not applicable."""

    id: str
    run_id: str
    attempt: int | None
    attempt_key: str | None
    job_id: str | None
    scheduler: str | None
    alert: str
    failure_mode: str
    error_type: str | None
    state: State
    action: Action
    reason: str
    policy: str
    budget_used: int | None
    budget_limit: int | None
    step_before: float | None
    created: float
    updated: float
    not_before: float = 0.0
    calls: int = 0  # attempts at the call that ends the attempt
    committed: float | None = None
    deadline: float | None = None  # of the verification
    paging: bool = False
    checkpoint_step: float | None = None  # of the last checkpoint that the run had reported
    approval: str = ""  # what a person must or may do before it begins, by `Approval`
    lost_gpu_hours: float | None = None  # by ending the attempt, if it were or is; 0 where the scheduler had ended it
    held_gpus: float | None = None  # by the job at the decision; 0 where the scheduler had ended it
    exclude_nodes: str = ""  # JSON: nodes that the restart avoids, with the Unix time of the evidence against each
    exclude_hours: float | None = None  # for which they are avoided after that; None is for good
    before: str | None = None  # `Figures` of the attempt that was ended
    checks: str | None = None  # JSON: what the new attempt was compared with, once it is over
    stacks: str | None = None  # where the ranks stood before the attempt was ended
    suspect: str | None = None  # the rank that stands out there
    capture: str | None = None  # the folder of what was captured
    cluster: str = ""  # of the run; empty where alerts name none, and then the run id counts alone
    shape: str = ""  # `Shape` of the restart, from when it begins; empty is that of the driver
    successor: str | None = None  # the new job that the attempt comes back as, where it does; its token is `id`
    resume_checkpoint: str | None = None  # the newest that is proven complete, verified before the attempt was ended
    subsystem: str | None = None  # of the failure, and its slug, by which policies match it as well
    signal: str | None = None

    @property
    def excluded(self) -> Mapping[str, float]:
        """The nodes that the restart avoids, with the Unix time of the evidence against each."""
        found: dict[str, float] = json.loads(self.exclude_nodes or "{}")
        return found

    @property
    def verified(self) -> list[dict[str, str]]:
        """The checks after the restart, each with name, verdict and detail; empty while they are not over."""
        found: list[dict[str, str]] = json.loads(self.checks or "[]")
        return found

    @property
    def degraded(self) -> bool:
        """Whether the run has recovered, and works worse than before."""
        return self.state is State.DONE and any(each["verdict"] == "worse" for each in self.verified)

    @property
    def counts(self) -> bool:
        """Whether it counts as a restart in the budgets of its run: one that was made, or is to be."""
        made = self.committed is not None and self.state is not State.ADOPTED
        return self.action is Action.RESTART and (made or self.state in OPEN_STATES)

    @property
    def restarts_left(self) -> int | None:
        """How many restarts of its failure mode it leaves; None where no limit applies."""
        used = (self.budget_used or 0) + self.counts
        return None if self.budget_limit is None else max(0, self.budget_limit - used)

    @property
    def generation(self) -> int:
        """The start of the job that it is about; raises InvalidAttemptKey where that is unknown."""
        return AttemptKey.parse(self.attempt_key or "").generation


@dataclass(frozen=True)
class Event:
    """One entry in the log of an incident."""

    time: float
    state: str
    detail: str


def as_json(incident: Incident, events: list[Event]) -> dict[str, object]:
    """Return the incident as the API and `decisions --format json` show it."""
    return {
        "id": incident.id,
        "cluster": incident.cluster,
        "run_id": incident.run_id,
        "attempt": incident.attempt,
        "attempt_key": incident.attempt_key,
        "job_id": incident.job_id,
        "scheduler": incident.scheduler,
        "successor": incident.successor,
        "alert": incident.alert,
        "failure_mode": incident.failure_mode,
        "error_type": incident.error_type,
        "state": incident.state.value,
        "action": incident.action.value,
        "reason": incident.reason,
        "policy": incident.policy,
        "budget": {"used": incident.budget_used, "limit": incident.budget_limit, "left": incident.restarts_left},
        "step_before": incident.step_before,
        "checkpoint_step": incident.checkpoint_step,
        "exclude_nodes": sorted(incident.excluded),
        "approval": incident.approval,
        "lost_gpu_hours": incident.lost_gpu_hours,
        "held_gpus": incident.held_gpus,
        "capture": {"stacks": incident.stacks, "suspect": incident.suspect, "folder": incident.capture},
        "checks": incident.verified,
        "degraded": incident.degraded,
        "paging": incident.paging,
        "created": incident.created,
        "updated": incident.updated,
        "events": [{"time": event.time, "state": event.state, "detail": event.detail} for event in events],
    }


def as_text(log: Iterable[tuple[Incident, list[Event]]]) -> str:
    """Return the decision log: one paragraph per incident, its decision and reason first, then one line per event."""
    return "\n".join(_paragraph(incident, events) for incident, events in log)


def _paragraph(incident: Incident, events: list[Event]) -> str:
    attempt = "?" if incident.attempt is None else incident.attempt
    budget = (
        "" if incident.budget_limit is None else f", {incident.budget_used} of {incident.budget_limit} restarts used"
    )
    head = f"{to_iso(incident.created)} {incident.run_id} attempt {attempt}: {incident.alert}"
    decided = f"  {incident.action.value} ({incident.policy}{budget}): {incident.reason}"
    lines = [f"  {to_iso(event.time)} {event.state:<10} {event.detail}" for event in events]
    captured = [] if incident.capture is None else [f"  captured in {incident.capture}"]
    return "".join(f"{clean(line, 1200)}\n" for line in (head, decided, *lines, *captured))
