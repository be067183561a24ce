"""Follows a run and prints what the system detects: alerts, decisions, steps. It polls the services."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.stack.local_stack import LocalStack
from trainwarden.stack.terminal import Terminal

_PROGRESS_SECONDS = 5.0
_SECONDS = 5
_DECISIONS = {"restart": "restart", "none": "no restart", "escalate": "a person must look"}


class Watcher:
    """Prints each new fact once. Call `poll()` a few times a second."""

    def __init__(self, folder: Path, job_id: str, services: LocalStack, terminal: Terminal) -> None:
        self._keys = f"local:{job_id}:"
        self._run_id = folder.name
        self._folder = folder
        self._prometheus = PrometheusClient(services.prometheus_url)
        auth = HttpAuth(token=services.remediator_token)
        self._remediator = HttpClient(services.remediator_url, _SECONDS, auth=auth)
        self._terminal = terminal
        self._alerts: dict[tuple[str, str], str] = {}
        self._events_seen: dict[str, int] = {}
        self._said_progress = 0.0
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
            samples = self._prometheus.query(f'ALERTS{{run_id="{self._run_id}"}}')
        except PrometheusError:
            return
        old = self._old_attempts()
        now: dict[tuple[str, str], str] = {}
        for sample in samples:
            identity = (sample.labels["alertname"], sample.labels.get("attempt", "?"))
            if identity[1] in old:
                continue
            if now.get(identity) != "firing":
                now[identity] = sample.labels["alertstate"]
        for (name, attempt), state in now.items():
            if self._alerts.get((name, attempt)) != state:
                self._terminal.event("alert", f"{name} is {state} (attempt {attempt})")
        for name, attempt in self._alerts.keys() - now.keys():
            self._terminal.event("alert", f"{name} is over (attempt {attempt})")
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
        identity = str(incident["id"])
        seen = self._events_seen.get(identity, 0)
        if seen == 0:
            self._print_decision(incident)
        for event in incident["events"][seen:]:
            detail = f": {event['detail']}" if event.get("detail") else ""
            self._terminal.event("remediate", f"{event['state']}{detail}")
        self._events_seen[identity] = len(incident["events"])

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
        if time.monotonic() - self._said_progress >= _PROGRESS_SECONDS:
            self._said_progress = time.monotonic()
            total = f"/{progress.total_steps}" if progress.total_steps else ""
            loss = f", loss {progress.loss:.4f}" if progress.loss is not None else ""
            self._terminal.event("run", f"step {step}{total}{loss} (attempt {progress.attempt})")
