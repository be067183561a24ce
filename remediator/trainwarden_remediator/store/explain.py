"""What is on record about a run, an alert or an incident: what was decided and why, and what comes next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from trainwarden.record.clock import to_iso
from trainwarden_remediator.database.schema import alerts, incident_alerts, incidents
from trainwarden_remediator.decide.facts import facts_as_json
from trainwarden_remediator.incidents.incident import (
    OPEN_STATES,
    WAITING_RUNS,
    Event,
    Incident,
    State,
    as_json,
    as_text,
    clean,
)
from trainwarden_remediator.incidents.incident_rows import STORM, named, read_log, select_incidents, selection
from trainwarden_remediator.incidents.price import CONTRADICTED, Approval
from trainwarden_remediator.incidents.roots import alert_as_text, alerts_as_json
from trainwarden_remediator.notify.message import budget_left, lost_work
from trainwarden_remediator.notify.outbox import evidence_of, suspects_of
from trainwarden_remediator.store.switches import FREEZE, find

_MAX_INCIDENTS = 5

_NEXT = {
    State.PROPOSED: "The restart begins once its delay is over, if all sources, read again, still agree.",
    State.CAPTURING: "Its ranks are asked for their stacks, for --capture-timeout at most; then the attempt is ended.",
    State.PREPARING: "The scheduler is to end the attempt; its answer is read before anything else is done.",
    State.IN_DOUBT: "The scheduler is read until it is clear whether the call took effect; nothing is repeated before.",
    State.PREPARED: "The attempt has ended and the next start is held; it is about to be given.",
    State.COMMITTED: "The next start is being given.",
    State.VERIFYING: "It is done when a newer attempt has passed the highest step of before; else it has failed.",
    State.DONE: "Nothing: the run has recovered.",
    State.FAILED: "Nothing for this attempt: the newer one has an alert, and an incident, of its own.",
    State.ADOPTED: "Nothing: something else has restarted or ended the job.",
    State.ESCALATED: "Nothing before a person has acted.",
    State.SUPPRESSED: "Nothing for this attempt, unless its alert ends and fires again.",
}
_NEXT_AFTER_WAITING = "Its alert goes on waiting: the run is restarted once nothing speaks against that any more."
_NEXT_BY_APPROVAL = "The restart begins once a person approves it."
_NEXT_BY_COUNTDOWN = "The restart begins once its countdown of SECONDS s is over, unless a person vetoes it."
_ANSWER = (
    "trainwarden-remediator approve STATE_DIR INCIDENT, which lets it begin now; or "
    "trainwarden-remediator veto STATE_DIR INCIDENT, which leaves this attempt as it is."
)
_AGAINST_FACTS = (
    "trainwarden-remediator approve STATE_DIR INCIDENT, which lets it be restarted; or act, then "
    "trainwarden-remediator ack STATE_DIR INCIDENT."
)
_STORM = (
    "Remove the cause, then trainwarden-remediator resume STATE_DIR, which restarts the runs that wait; "
    "trainwarden-remediator ack STATE_DIR INCIDENT ends the page alone."
)
_STOP = "trainwarden-remediator freeze STATE_DIR --run-id=RUN, or silence its alert, until the attempt is ended."
_MAY = {
    State.PROPOSED: _STOP,
    State.CAPTURING: _STOP,
    State.PREPARING: _STOP,
    State.IN_DOUBT: "Look at the job in the scheduler; a job that is left held is released by scontrol release.",
    State.PREPARED: "scancel the job, if it must not start; scontrol release, if the remediator is down.",
    State.COMMITTED: "scancel the job, if it must not start.",
    State.VERIFYING: "scancel the job, if it must not go on.",
    State.FAILED: "Look at the newer attempt.",
    State.ESCALATED: "Act on the reason, then trainwarden-remediator ack STATE_DIR INCIDENT, which ends the page.",
    State.SUPPRESSED: "Restart it yourself, or select a policy that does; the remediator does not.",
}
# Of schedulers that hold no jobs.
_MAY_WITHOUT_HOLDS = {
    **_MAY,
    State.IN_DOUBT: "Look at the job in the scheduler.",
    State.PREPARED: "Stop the next job as soon as it is there, if it must not go on.",
    State.COMMITTED: "Stop the next job as soon as it is there, if it must not go on.",
    State.VERIFYING: "Stop the job, if it must not go on.",
}
_WITHOUT_HOLDS = ("ray", "local")


@dataclass(frozen=True)
class Waiting:
    """An alert as it is on record."""

    name: str
    run_id: str
    pending: bool
    waits_for: str | None
    received: float
    incident_id: str | None


@dataclass(frozen=True)
class Account:
    """What is on record. `about` is a run, an alert or an incident; `switches` are those that hold.

    `state_dir` is the folder that the commands for a person name; `waiting` are the incidents that page while an alert
    of theirs still awaits its decision.
    """

    about: str
    state_dir: Path
    alerts: Sequence[Waiting]
    incidents: Sequence[tuple[Incident, list[Event]]]
    evidence: dict[str, tuple[str, ...]]
    suspects: dict[str, tuple[str, ...]]
    facts: dict[str, list[dict[str, Any]]]
    joined: dict[str, list[dict[str, Any]]]
    switches: Sequence[str]
    waiting: Collection[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on record."""
        return not self.alerts and not self.incidents


def account_of(connection: sa.Connection, about: str, state_dir: Path, now: float) -> Account:
    """Return what is on record about the run, the alert or the incident of this name; an id may be cut to 4 letters."""
    found = read_log(connection, about, _MAX_INCIDENTS)
    if not found:
        found = [(each, _events(connection, each)) for each in named(connection, about)[-_MAX_INCIDENTS:]]
    waiting = _alerts(connection, about, [incident.id for incident, _ in found])
    if not found:
        ids = [each.incident_id for each in waiting if each.incident_id][-_MAX_INCIDENTS:]
        chosen = select_incidents(connection, selection(incidents.c.id.in_(ids)))
        found = [(each, _events(connection, each)) for each in chosen]
    runs = {about} | {incident.run_id for incident, _ in found} | {each.run_id for each in waiting}
    return Account(
        about,
        state_dir,
        waiting,
        found,
        {incident.id: evidence_of(connection, incident.id) for incident, _ in found},
        {incident.id: suspects_of(connection, incident.id) for incident, _ in found},
        {incident.id: facts_as_json(connection, incident.id) for incident, _ in found},
        {incident.id: alerts_as_json(connection, incident.id) for incident, _ in found},
        _switches(connection, runs, {incident.cluster for incident, _ in found}, now),
        _waiting(connection, [incident.id for incident, _ in found if incident.state is State.ESCALATED]),
    )


def _waiting(connection: sa.Connection, ids: Sequence[str]) -> set[str]:
    """Return which of these incidents have an alert that still awaits its decision."""
    of_incident = sa.select(incident_alerts.c.incident_id).join(alerts, alerts.c.key == incident_alerts.c.alert_key)
    return set(connection.scalars(of_incident.where(alerts.c.pending, incident_alerts.c.incident_id.in_(ids))))


def _events(connection: sa.Connection, incident: Incident) -> list[Event]:
    log = read_log(connection, incident.run_id)
    return next((events for each, events in log if each.id == incident.id), [])


def _alerts(connection: sa.Connection, about: str, ids: Sequence[str]) -> list[Waiting]:
    """Return the alerts of a run, of a name, or of these incidents, oldest first."""
    found = []
    for row in connection.execute(sa.select(alerts).order_by(alerts.c.received)):
        labels = json.loads(row.labels)
        name, run_id = str(labels.get("alertname", "")), str(labels.get("run_id", ""))
        if about in (name, run_id, row.key) or (row.incident_id in ids and row.incident_id):
            found.append(Waiting(name, run_id, row.pending, row.waits_for, row.received, row.incident_id))
    return found


def _switches(connection: sa.Connection, runs: Collection[str], clusters: Collection[str], now: float) -> list[str]:
    """Return what holds restarts of these runs back: freezes of them or of all, and storms of their clusters."""
    held = [
        each
        for each in find(connection, now=now)
        if (each.name == FREEZE and (not each.scope or each.scope in runs))
        or (each.name == STORM and each.is_on and (not each.scope or each.scope in clusters))
    ]
    return [
        f"{each.name} of {each.scope or 'everything'} by {each.by} since {to_iso(each.at)}"
        f"{f' until {to_iso(each.until)}' if each.until else ''}: {each.reason}"
        for each in sorted(held, key=lambda each: (each.name, each.scope))
    ]


def _state_of(incident: Incident) -> str:
    if incident.paging:
        return f"{incident.state.value}, pages"
    return incident.state.value if incident.state in OPEN_STATES else f"{incident.state.value}, over"


def next_of(incident: Incident, *, waits: bool = False) -> str:
    """Return what the remediator does next; `waits`: an alert of the incident still awaits its decision."""
    text = _NEXT_AFTER_WAITING if waits else _NEXT[incident.state]
    approval = Approval.parse(incident.approval) if incident.state is State.PROPOSED else None
    if approval is not None:
        seconds = approval.veto_seconds
        text = _NEXT_BY_APPROVAL if seconds is None else _NEXT_BY_COUNTDOWN.replace("SECONDS", f"{seconds:g}")
    if incident.state is State.PROPOSED and incident.not_before:
        text += f" Not before {to_iso(incident.not_before)}."
    return f"{text} The run pages until it is acknowledged." if incident.paging else text


def may_of(incident: Incident, state_dir: Path) -> str:
    """Return what a person may do, with commands that can be pasted into a shell."""
    of_state = _MAY_WITHOUT_HOLDS if incident.scheduler in _WITHOUT_HOLDS else _MAY
    text = of_state.get(incident.state, "Nothing is needed.")
    if incident.state is State.PROPOSED and incident.approval:
        text = _ANSWER
    if incident.state is State.ESCALATED and incident.approval == CONTRADICTED:
        text = _AGAINST_FACTS
    if incident.state is State.ESCALATED and not incident.run_id and incident.alert != WAITING_RUNS:
        text = _STORM
    # The folder last: it is the operator's text, and may hold any word.
    text = text.replace("INCIDENT", incident.id).replace("RUN", incident.run_id)
    return text.replace("STATE_DIR", shlex.quote(f"--state-dir={state_dir}"))


def decided_by(connection: sa.Connection, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what each of these incidents was decided by, as the API shows it: its alerts and facts."""
    return {
        each: {"alerts": alerts_as_json(connection, each), "facts": facts_as_json(connection, each)} for each in ids
    }


def account_as_json(account: Account) -> dict[str, Any]:
    """Return the account for a program."""
    return {
        "about": account.about,
        "switches": list(account.switches),
        "alerts": [vars(each) for each in account.alerts],
        "incidents": [
            {
                **as_json(incident, events),
                "evidence": list(account.evidence[incident.id]),
                "facts": account.facts[incident.id],
                "alerts": account.joined[incident.id],
                "suspects": list(account.suspects[incident.id]),
                "next": next_of(incident, waits=incident.id in account.waiting),
                "you_may": may_of(incident, account.state_dir),
            }
            for incident, events in account.incidents
        ],
    }


def account_as_text(account: Account) -> str:
    """Return the account for a person: the newest incident last."""
    lines = [f"switched: {each}" for each in account.switches]
    for alert in account.alerts:
        state = f"waits: {alert.waits_for or 'to be examined'}" if alert.pending else "decided"
        lines.append(f"{to_iso(alert.received)} alert {alert.name} of run {alert.run_id}: {state}")
    text = "".join(f"{clean(line, 1200)}\n" for line in lines)
    for incident, events in account.incidents:
        shown = as_json(incident, [])
        more = (
            ("incident", incident.id),
            ("cluster", incident.cluster),
            ("state", _state_of(incident)),
            ("alerts", "; ".join(map(alert_as_text, account.joined[incident.id]))),
            ("facts", "; ".join(account.evidence[incident.id])),
            ("suspects", "; ".join(account.suspects[incident.id])),
            ("a restart loses", lost_work(shown)),
            ("budget", budget_left(shown)),
            ("next", next_of(incident, waits=incident.id in account.waiting)),
            ("you may", may_of(incident, account.state_dir)),
        )
        text += as_text([(incident, events)])
        text += "".join(f"  {name}: {clean(value, 1200)}\n" for name, value in more if value)
    return text
