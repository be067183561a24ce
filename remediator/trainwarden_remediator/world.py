"""What the remediator reads and acts upon, as ports: clock, alerts, runs, schedulers, run records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError
from trainwarden.record.clock import from_iso
from trainwarden.record.sentinels import Sentinel, current_completion
from trainwarden.record.store import RecordStore
from trainwarden_remediator.drivers.driver import Driver
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import ReportedRun, RunSource
from trainwarden_remediator.incident import Alert

Firing = list[Alert] | Unknown


class Clock(Protocol):
    """`now` is wall-clock Unix time and may jump; `monotonic` only measures durations inside this process."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never backwards."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some point in the past."""
        return time.monotonic()


class AlertSource(Protocol):
    """Lists the alerts that are firing."""

    def firing(self) -> Firing:
        """Return every remediable alert that is active, not silenced and not inhibited."""


class AlertmanagerAlerts:
    """Lists the alerts of one Alertmanager. Each webhook that was lost is made up for by this list."""

    def __init__(self, alertmanager: AlertmanagerClient) -> None:
        self._alertmanager = alertmanager

    def firing(self) -> Firing:
        """Return the list, or why there is none."""
        try:
            alerts = self._alertmanager.alerts('remediate="true"', silenced=False, inhibited=False)
        except AlertmanagerError as error:
            return Unknown(str(error))
        # Checked again: an answer that ignores the parameters must not lead to more actions.
        found = (Alert(each.labels, from_iso(each.starts_at)) for each in alerts if not each.is_suppressed)
        return [alert for alert in found if alert.remediable]


class Records:
    """The run records below `runs_dir`; None where the remediator cannot see them: then every answer is "no"."""

    def __init__(self, runs_dir: Path | None) -> None:
        self._runs_dir = runs_dir

    def complete(self, run: ReportedRun) -> bool:
        """Return whether the run's current attempt left a `_complete`. Unreadable is not complete."""
        if self._runs_dir is None:
            return False
        return isinstance(current_completion(self._runs_dir / run.run_id, run.attempt_key, run.started), Sentinel)

    def announce_restart(
        self, run_id: str, attempt_key: str, reason: str, intent: str, checkpoint_trust: str | None = None
    ) -> str | None:
        """Write `_restart`, from which the attempt learns why it ends; return the error, which stops nothing."""
        if self._runs_dir is None or not (self._runs_dir / run_id).is_dir():
            return None
        try:
            RecordStore(self._runs_dir / run_id).announce_restart(attempt_key, reason, intent, checkpoint_trust)
        except OSError as error:
            return f"the restart could not be announced in the record: {error.strerror}"
        return None


@dataclass(frozen=True)
class World:
    """Everything outside the remediator. `drivers` are keyed by the scheduler's name."""

    clock: Clock
    alerts: AlertSource
    runs: RunSource
    drivers: Mapping[str, Driver]
    records: Records
