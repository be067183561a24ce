"""Follows a run and prints what the system detects: alerts, decisions, steps. It polls the services."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwarden.clients.http import HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.stack.terminal import Terminal

_PROGRESS_SECONDS = 5.0
_DECISIONS = {"restart": "restart", "none": "no restart", "escalate": "a person must look"}


class Watcher:
    """Prints each new fact once. Call `poll()` a few times a second.

    Args:
        folder: the record of the run.
        keys: what the attempt keys of this session's job begin with; incidents of other jobs are left out.
        prometheus: has the alerts.
        remediator: has the decisions.
        terminal: where it prints.
        catch_up: is called with the Unix time of each decision and action of the remediator, before it is printed;
            prints what others did before.
        is_over: returns whether the job has ended: no position is printed any more, unless it starts again.
        clock: seconds, for how often the position is printed.
    """

    def __init__(
        self,
        folder: Path,
        keys: str,
        prometheus: PrometheusClient,
        remediator: HttpClient,
        terminal: Terminal,
        catch_up: Callable[[float], None],
        *,
        is_over: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._run_id = folder.name
        self._folder = folder
        self._prometheus = prometheus
        self._remediator = remediator
        self._catch_up = catch_up
        self._is_over = is_over
        self._clock = clock
        self._terminal = terminal
        self._alerts: dict[tuple[str, str], str] = {}
        self._events_seen: dict[str, int] = {}
        self._progress_shown = -_PROGRESS_SECONDS
        self._position: tuple[int | None, int] | None = None
        self._moved = 0.0
        self._to_pass: tuple[int, int] | None = None
        self.incidents: list[dict[str, Any]] = []
        self.fired: set[str] = set()

    def poll(self) -> None:
        """Poll each service once and print what is new."""
        self._poll_alerts()
        self._poll_incidents()
        self._poll_progress()

    def incident_of(self, attempt_key: str) -> Mapping[str, Any] | None:
        """Return the newest incident of an attempt."""
        return next((each for each in reversed(self.incidents) if each["attempt_key"] == attempt_key), None)

    def _poll_alerts(self) -> None:
        try:
            # Series alone remain over a restart of Prometheus; they lack what was found in its first two rounds, which
            # last a minute for the rules of the remediator and are sent to people all the same.
            recorded = self._prometheus.query(f'ALERTS{{run_id="{self._run_id}"}}')
            active = [each for each in self._prometheus.alerts() if each.labels.get("run_id") == self._run_id]
        except PrometheusError:
            return
        old = self._old_attempts()
        now: dict[tuple[str, str], str] = {}
        states = [(each.labels, each.labels["alertstate"]) for each in recorded]
        for labels, state in [*states, *((each.labels, each.state) for each in active)]:
            identity = (labels["alertname"], labels.get("attempt", ""))
            # What may become an information to people is none yet.
            is_news = labels.get("severity") != "info" or state == "firing"
            if identity[1] in old or not is_news:
                continue
            if now.get(identity) != "firing":
                now[identity] = state
        for (name, attempt), state in now.items():
            if self._alerts.get((name, attempt)) != state:
                self._terminal.event("alert", f"{name} is {state}{_of(attempt)}")
        for name, attempt in self._alerts.keys() - now.keys():
            self._terminal.event("alert", f"{name} is over{_of(attempt)}")
        self._alerts = now
        self.fired |= {name for (name, _), state in now.items() if state == "firing"}

    def _old_attempts(self) -> set[str]:
        """Return the attempts of earlier sessions of the same run, whose facts are not new."""
        metadata = read_metadata(self._folder)
        attempts = metadata.attempts if isinstance(metadata, Metadata) else ()
        return {str(each.attempt) for each in attempts if not each.key.startswith(self._keys)}

    def _poll_incidents(self) -> None:
        try:
            incidents = self._remediator.get("/api/v1/incidents", {"run_id": self._run_id}).json()
        except HttpError:
            return
        if not isinstance(incidents, list):
            return
        self.incidents = [each for each in incidents if str(each["attempt_key"]).startswith(self._keys)]
        for incident in self.incidents:
            self._print_events(incident)

    def _print_events(self, incident: Mapping[str, Any]) -> None:
        identity, events = str(incident["id"]), incident["events"]
        seen = self._events_seen.get(identity, 0)
        decided = next((number for number, event in enumerate(events) if event["state"] != "RECEIVED"), None)
        for number, event in list(enumerate(events))[seen:]:
            detail = f": {event['detail']}" if event.get("detail") else ""
            self._catch_up(float(event["time"]))
            self._terminal.event("remediate", f"{event['state']}{detail}")
            if number == decided:
                self._print_decision(incident)
        self._events_seen[identity] = len(events)

    def _print_decision(self, incident: Mapping[str, Any]) -> None:
        decision = _DECISIONS.get(incident["action"], incident["action"])
        budget = incident.get("budget") or {}
        if incident["action"] == "restart" and budget.get("limit") is not None:
            decision += f" ({budget['used'] + 1} of {budget['limit']})"
        about = f"{incident['alert']} of attempt {incident['attempt']}"
        self._terminal.event("decision", f"{decision} after {about}: {incident['reason']}")
        if incident["action"] == "restart" and incident.get("step_before") is not None:
            self._to_pass = (int(incident["attempt"]), int(incident["step_before"]))

    def _poll_progress(self) -> None:
        progress = read_progress(self._folder)
        if not isinstance(progress, Progress) or progress.step is None:
            return
        step = int(progress.step)
        if self._to_pass is not None and progress.attempt is not None:
            attempt, before = self._to_pass
            if progress.attempt > attempt and step > before:
                self._terminal.event("good", f"step {step} has passed {before}, where the run broke")
                self._to_pass = None
        self._print_progress(progress, step)

    def _print_progress(self, progress: Progress, step: int) -> None:
        """Print the position of the loop; of one that stands still, how long it has, while the run lasts."""
        now, position = self._clock(), (progress.attempt, step)
        if self._position != position:
            self._position, self._moved = position, now
        if now - self._progress_shown < _PROGRESS_SECONDS:
            return
        metadata = read_metadata(self._folder)
        if self._is_over() or not isinstance(metadata, Metadata) or metadata.status != "running":
            return
        still = f", no new one for {now - self._moved:.0f} s" if self._moved <= self._progress_shown else ""
        self._progress_shown = now
        total = f"/{progress.total_steps}" if progress.total_steps else ""
        loss = f", loss {progress.loss:.4f}" if progress.loss is not None else ""
        self._terminal.event("run", f"step {step}{total}{loss} (attempt {progress.attempt}){still}")


def _of(attempt: str) -> str:
    """Name the attempt of an alert; an alert about the whole run has none."""
    return f" (attempt {attempt})" if attempt else ""
