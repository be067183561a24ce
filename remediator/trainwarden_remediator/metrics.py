"""The remediator's own metrics. Counters start with the process; the rest is read from the database."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

import trainwarden
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.incident import MODES, Action, Incident, State
from trainwarden_remediator.store import Store

_P = "trainwarden_remediator"
_OUTCOMES = {
    State.DONE: "recovered",
    State.FAILED: "failed",
    State.ADOPTED: "adopted",
    State.ESCALATED: "escalated",
}


class Metrics:
    """Counters, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter({"200": 0})
        self._decisions: Counter[tuple[str, str]] = Counter()
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

    def polled(self, now: float, *, success: bool) -> None:
        """Record a poll of Alertmanager."""
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
            gauges = (
                ("webhook_last_received_timestamp_seconds", "When a webhook was last accepted.", self._last_received),
                ("poll_success", "Whether the last poll of Alertmanager succeeded.", self._poll_success),
                ("poll_last_success_timestamp_seconds", "When a poll last succeeded.", self._last_poll),
                (
                    "loop_success",
                    "Whether the loop could do all of its work when it last came round.",
                    self._tick_success,
                ),
                ("loop_last_success_timestamp_seconds", "When the loop last could do so.", self._last_tick),
            )
        yield from (requests, decisions, restarts)
        for name, text, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(f"{_P}_{name}", text, value=float(value))


class RemediatorCollector:
    """Counters, database and the state of the web configuration in one page."""

    def __init__(self, metrics: Metrics, store: Store, web_config: ReloadingWebConfig | None = None) -> None:
        self._metrics = metrics
        self._store = store
        self._web_config = web_config

    def collect(self) -> Iterator[Metric]:
        """Return all families. Raises what the database raises: a failed scrape is better than a wrong one."""
        yield from self._metrics.families()
        counts = self._store.count_by_state()
        incidents = GaugeMetricFamily(f"{_P}_incidents", "Incidents on record by state.", labels=["state"])
        for state in State:
            incidents.add_metric([state.value], counts.get(state.value, 0))
        yield incidents
        yield _escalations(self._store.escalations())
        if self._web_config is not None:
            yield from _web_config(self._web_config)
        build = GaugeMetricFamily("trainwarden_build_info", "The version that runs.", labels=["version"])
        build.add_metric([trainwarden.__version__], 1)
        yield build


def _web_config(web_config: ReloadingWebConfig) -> Iterator[Metric]:
    """Return the metrics that the exporter has of its own file."""
    web_config.current()  # read again, if it changed
    for name, text, value in (
        ("successful", "1 if the file is in use; 0 if it is invalid and an older one is.", web_config.is_current),
        ("success_timestamp_seconds", "When the configuration in use was read.", web_config.last_success),
    ):
        family = GaugeMetricFamily(f"trainwarden_config_last_reload_{name}", text, labels=["file"])
        family.add_metric(["web"], float(value))
        yield family


def _escalations(incidents: list[Incident]) -> Metric:
    names = ["run_id", "job_id", "attempt", "failure_mode", "reason"]
    family = GaugeMetricFamily(f"{_P}_escalation_info", "The remediator gave up: a person must look.", labels=names)
    seen = set()
    for incident in incidents:
        attempt = "" if incident.attempt is None else str(incident.attempt)
        labels = (incident.run_id, incident.job_id or "", attempt, incident.failure_mode, incident.reason)
        if labels not in seen:
            seen.add(labels)
            family.add_metric(labels, 1)
    return family
