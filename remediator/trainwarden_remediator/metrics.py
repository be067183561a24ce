"""The remediator's own metrics. Counters start with the process; the rest is read from the database."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

import trainwarden
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.database.database import reading
from trainwarden_remediator.database.schema import incidents
from trainwarden_remediator.incidents.incident import MODES, Action, Incident, State
from trainwarden_remediator.incidents.webhook import Delivery
from trainwarden_remediator.observe.evidence import RESTARTS_METRIC
from trainwarden_remediator.observe.readings import Answers
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.web.reloading import Reloading

_P = "trainwarden_remediator"
_RELOAD = "trainwarden_config_last_reload"
_RECOVERY_SECONDS = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)
_READINGS = {True: "known", False: "unknown"}
# By which webhooks are answered: a counter that begins with its first event hides that from `increase`.
_WEBHOOK_CODES = ("200", "400", "401", "413", "422", "503")
# After how long a person would have restarted a run that hangs, where it is to be said what a restart has saved.
_PERSON_SECONDS = 1800.0
_OF_INCIDENT = ("run_id", "job_id", "attempt", "failure_mode")
_OUTCOMES = {
    State.DONE: "recovered",
    State.FAILED: "failed",
    State.ADOPTED: "adopted",
    State.ESCALATED: "escalated",
}


class Metrics:
    """Counters, for any thread. `sources` are read beside Alertmanager: Prometheus and the schedulers."""

    def __init__(self, sources: Sequence[str] = (), monotonic: Callable[[], float] = time.monotonic) -> None:
        self.answers = Answers(monotonic)
        self._sources = ("alertmanager", *sources)
        self._lock = threading.Lock()
        self._readings: Counter[tuple[str, str]] = Counter(
            {(source, outcome): 0 for source in self._sources for outcome in _READINGS.values()}
        )
        self._foreign = 0
        self._alertmanagers: dict[str, bool] = {}
        self._last_watchdog: float | None = None
        self._excused: frozenset[str] = frozenset()
        self._requests: Counter[str] = Counter(dict.fromkeys(_WEBHOOK_CODES, 0))
        modes = (*MODES, "unknown")
        self._decisions: Counter[tuple[str, str]] = Counter(
            {(action.value, mode): 0 for action in (Action.RESTART, Action.ESCALATE, Action.NONE) for mode in modes}
        )
        self._restarts: Counter[str] = Counter(dict.fromkeys(_OUTCOMES.values(), 0))
        self._last_received: float | None = None
        self._poll_success: bool | None = None
        self._last_poll: float | None = None
        self._tick_success: bool | None = None
        self._last_tick: float | None = None

    def received(self, status: int, now: float) -> None:
        """Count a webhook request that was answered."""
        with self._lock:
            self._requests[str(status)] += 1
            if status == 200:
                self._last_received = now

    def delivered(self, delivery: Delivery, now: float) -> None:
        """Record what a webhook held beside the alerts to act on."""
        with self._lock:
            self._foreign += delivery.foreign
            if delivery.watchdog:
                self._last_watchdog = now

    @property
    def last_watchdog(self) -> float | None:
        """When the watchdog last arrived, Unix time."""
        return self._last_watchdog

    def excuse(self, alert_key: str, *, excused: bool) -> None:
        """Note whether it is known why a pending alert waits: a person planned it, is paged, or expects no restart."""
        known = {alert_key} if excused else set()
        self._excused = self._excused.difference({alert_key}) | known

    def keep_excuses(self, alert_keys: Collection[str]) -> None:
        """Forget what was noted of other alerts than those that are pending."""
        self._excused = self._excused.intersection(alert_keys)

    def is_excused(self, alert_key: str) -> bool:
        """Return whether an alert waits for a reason that is known to a person."""
        return alert_key in self._excused

    def read(self, source: str, problem: str | None, what: str = "") -> None:
        """Count a reading of a source; `what` was read of it, `problem` is why it gave no answer."""
        self.answers.read(source, problem, what)
        with self._lock:
            self._readings[source, _READINGS[problem is None]] += 1

    def alertmanager_answered(self, url: str, problem: str | None) -> None:
        """Record whether one of the Alertmanagers answered when it was last asked."""
        with self._lock:
            self._alertmanagers[url] = problem is None

    def polled(self, now: float, problem: str | None) -> None:
        """Record a poll of Alertmanager; `problem` is why it gave no answer."""
        self.read("alertmanager", problem)
        success = problem is None
        with self._lock:
            self._poll_success = success
            if success:
                self._last_poll = now

    def ticked(self, now: float, *, success: bool) -> None:
        """Record a tick of the loop; `success`: all of its work was done."""
        with self._lock:
            self._tick_success = success
            if success:
                self._last_tick = now

    def decided(self, incident: Incident) -> None:
        """Count a decision."""
        mode = incident.failure_mode if incident.failure_mode in MODES else "unknown"
        with self._lock:
            self._decisions[incident.action.value, mode] += 1

    def settled(self, incident: Incident) -> None:
        """Count an incident that ended."""
        outcome = _OUTCOMES.get(incident.state)
        if outcome is not None and incident.action is Action.RESTART:
            with self._lock:
                self._restarts[outcome] += 1

    def families(self) -> Iterator[Metric]:
        """Return the counters as they are now."""
        with self._lock:
            requests = CounterMetricFamily(
                f"{_P}_webhook_requests", "Webhook requests by HTTP status.", labels=["code"]
            )
            for code, count in self._requests.items():
                requests.add_metric([code], count)
            decisions = CounterMetricFamily(
                f"{_P}_decisions", "Decisions written down.", labels=["action", "failure_mode"]
            )
            for labels, count in self._decisions.items():
                decisions.add_metric(labels, count)
            restarts = CounterMetricFamily(f"{_P}_restarts", "Restarts by what came of them.", labels=["outcome"])
            for outcome, count in self._restarts.items():
                restarts.add_metric([outcome], count)
            readings = CounterMetricFamily(
                f"{_P}_readings", "Readings of a source by whether it answered.", labels=["source", "outcome"]
            )
            for labels, count in self._readings.items():
                readings.add_metric(labels, count)
            alertmanagers = GaugeMetricFamily(
                f"{_P}_alertmanager_up", "1 if this Alertmanager answered when it was last asked.", labels=["url"]
            )
            for url, answered in self._alertmanagers.items():
                alertmanagers.add_metric([url], float(answered))
            foreign = CounterMetricFamily(
                f"{_P}_foreign_alerts", "Alerts of other clusters that were ignored.", value=self._foreign
            )
            gauges = (
                ("webhook_last_received_timestamp_seconds", "When a webhook was last accepted.", self._last_received),
                ("watchdog_last_received_timestamp_seconds", "When the watchdog last arrived.", self._last_watchdog),
                ("poll_success", "Whether the last poll of Alertmanager succeeded.", self._poll_success),
                ("poll_last_success_timestamp_seconds", "When a poll last succeeded.", self._last_poll),
                (
                    "loop_success",
                    "Whether the loop could do all of its work when it last came round.",
                    self._tick_success,
                ),
                ("loop_last_success_timestamp_seconds", "When the loop last could do so.", self._last_tick),
            )
        unable = GaugeMetricFamily(
            f"{_P}_unable_to_judge", "1 if a source has given no answer for a minute.", labels=["source"]
        )
        missing = self.answers.missing()
        for source in self._sources:
            unable.add_metric([source], float(source in missing))
        yield unable
        yield from (requests, decisions, restarts, readings, alertmanagers, foreign)
        for name, text, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(f"{_P}_{name}", text, value=float(value))


class RemediatorCollector:
    """Counters, database and the state of the web configuration in one page."""

    def __init__(
        self,
        metrics: Metrics,
        store: Store,
        web_config: ReloadingWebConfig | None = None,
        files: Sequence[Reloading[Any]] = (),
        more: Sequence[Callable[[], Iterator[Metric]]] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._metrics = metrics
        self._store = store
        self._web_config = web_config
        self._files = files
        self._more = more

    def collect(self) -> Iterator[Metric]:
        """Return all families. Raises what the database raises: a failed scrape is better than a wrong one."""
        yield from self._metrics.families()
        counts = self._store.count_by_state()
        incidents = GaugeMetricFamily(f"{_P}_incidents", "Incidents on record by state.", labels=["state"])
        for state in State:
            incidents.add_metric([state.value], counts.get(state.value, 0))
        yield incidents
        restarts = GaugeMetricFamily(RESTARTS_METRIC, "Restarts of a run on record.", labels=["run_id", "database"])
        for run_id, count in self._store.adoptions.restarts().items():
            restarts.add_metric([run_id, self._store.database], count)
        yield restarts
        yield self._open_incidents()
        yield self._pending_alerts()
        yield _reasons("escalation_info", "The remediator gave up: a person must look.", self._store.escalations())
        yield _recoveries(self._store.recovery_seconds(leave_out=CANARY_JOB))
        yield _budgets(self._store.budgets_left())
        yield _reasons("refusal_info", "The policy restarts no such failure.", self._store.refusals())
        yield from self._configuration()
        for families in self._more:
            yield from families()
        build = GaugeMetricFamily("trainwarden_build_info", "The version that runs.", labels=["version"])
        build.add_metric([trainwarden.__version__], 1)
        yield build

    def _open_incidents(self) -> Metric:
        """Return since when each open incident is worked on; of one that waits for a person, the present."""
        text = "When an open incident was decided, or its work began; now, while a person is waited for."
        family = GaugeMetricFamily(f"{_P}_incident_timestamp_seconds", text, labels=[*_OF_INCIDENT, "state"])
        storms, stages = {each.scope for each in self._store.switches.storms()}, self._store.open_since()
        since: dict[tuple[str, ...], float] = {}
        for incident in self._store.open_incidents():
            labels = (*_labels(incident), incident.state.value)
            begun = max(stages.get(incident.id, incident.created), incident.not_before)
            begun = max(begun, self._store.switches.resumed(incident.cluster))
            if incident.state is State.PROPOSED and (incident.approval or incident.cluster in storms):
                begun = max(begun, self._now())
            since[labels] = min(begun, since.get(labels, begun))
        for labels, begun in since.items():
            family.add_metric(labels, begun)
        return family

    def _pending_alerts(self) -> Metric:
        text = (
            "When the oldest alert of a run that awaits a decision was received; now, while that is known to a person."
        )
        family = GaugeMetricFamily(f"{_P}_alert_pending_timestamp_seconds", text, labels=["run_id", "alert"])
        since: dict[tuple[str, str], float] = {}
        for pending in self._store.pending():
            labels = (pending.alert.run_id or "", pending.alert.label("alertname") or "")
            is_known = self._metrics.is_excused(pending.alert.key)
            received = max(pending.received, self._now()) if is_known else pending.received
            since[labels] = min(received, since.get(labels, received))
        for labels, received in since.items():
            family.add_metric(labels, received)
        return family

    def _configuration(self) -> Iterator[Metric]:
        """Return the metrics that the exporter has of its own files."""
        successful = GaugeMetricFamily(
            f"{_RELOAD}_successful",
            "1 if the file is in use; 0 if it is invalid and an older one is.",
            labels=["file"],
        )
        success = GaugeMetricFamily(
            f"{_RELOAD}_success_timestamp_seconds",
            "When the configuration in use was read.",
            labels=["file"],
        )
        if self._web_config is not None:
            self._web_config.current()  # read again, if it changed
            successful.add_metric(["web"], float(self._web_config.is_current))
            success.add_metric(["web"], self._web_config.last_success)
        for each in self._files:
            successful.add_metric([each.name], float(each.is_current))
            success.add_metric([each.name], each.last_success)
        yield from (successful, success)


class GpuHours:
    """The GPU hours that restarts have lost and saved, by what is on record."""

    def __init__(self, engine: sa.Engine) -> None:
        self._reading = reading(engine)

    def families(self) -> Iterator[Metric]:
        """Return the metrics."""
        # One that is only about to be made may still be withdrawn, and a counter does not fall.
        made = sa.and_(
            incidents.c.committed.is_not(None),
            incidents.c.action == Action.RESTART.value,
            incidents.c.state != State.COMMITTED.value,
        )
        lost = sa.select(sa.func.coalesce(sa.func.sum(incidents.c.lost_gpu_hours), 0.0)).where(made)
        earlier = _PERSON_SECONDS - (incidents.c.committed - incidents.c.created)
        saved = sa.select(sa.func.coalesce(sa.func.sum(incidents.c.held_gpus * earlier / 3600.0), 0.0)).where(
            incidents.c.committed.is_not(None), incidents.c.state == State.DONE.value, earlier > 0
        )
        with self._reading.begin() as connection:
            values = {"lost": connection.execute(lost).scalar_one(), "saved": connection.execute(saved).scalar_one()}
        texts = {
            "lost": "GPU hours of work that restarts have ended and that was done again.",
            "saved": "GPU hours that runs would have gone on hanging until a person came after half an hour.",
        }
        for name, value in values.items():
            yield CounterMetricFamily(f"trainwarden_remediator_gpu_hours_{name}", texts[name], value=float(value))


def _reasons(name: str, text: str, incidents: list[Incident]) -> Metric:
    family = GaugeMetricFamily(f"{_P}_{name}", text, labels=[*_OF_INCIDENT, "reason"])
    for labels in dict.fromkeys((*_labels(incident), incident.reason) for incident in incidents):
        family.add_metric(labels, 1)
    return family


def _recoveries(seconds: Sequence[float]) -> Metric:
    """Return how long recoveries on record took."""
    family = HistogramMetricFamily(
        f"{_P}_recovery_seconds",
        "From receiving an alert until its run had recovered, of all restarts on record but the canary's.",
    )
    buckets = [(f"{edge:g}", sum(each <= edge for each in seconds)) for edge in _RECOVERY_SECONDS]
    family.add_metric([], [*buckets, ("+Inf", len(seconds))], sum(seconds))
    return family


def _budgets(left: Mapping[tuple[str, str], int]) -> Metric:
    family = GaugeMetricFamily(
        f"{_P}_budget_left", "Restarts left by the last decision on a run.", labels=["run_id", "failure_mode"]
    )
    for labels, count in left.items():
        family.add_metric(labels, count)
    return family


def _labels(incident: Incident) -> tuple[str, ...]:
    attempt = "" if incident.attempt is None else str(incident.attempt)
    return incident.run_id, incident.job_id or "", attempt, incident.failure_mode
