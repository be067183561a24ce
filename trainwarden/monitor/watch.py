"""One round of a monitor: read the records, assess the runs, send what is news."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId
from trainwarden.monitor.alerts import Alert, AlertManager, Channel, alert_about
from trainwarden.monitor.history import HistoryUnreadable
from trainwarden.runs.assessment import RUNNING, TIMED_OUT, UNKNOWN, WARNING, Assessment, assess
from trainwarden.runs.places import CannotRead, RecordPlace, RecordPrefix

if TYPE_CHECKING:
    from trainwarden.monitor.history import AlertHistory


@dataclass
class Round:
    """What a round found.

    Attributes:
        runs: how each run is.
        missing: runs that were asked for and have no record.
        sent: alerts that a channel took.
        problems: one line for each thing that could not be read or sent.
        is_final: another round would fail the same way.
    """

    runs: list[Assessment] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    sent: list[Alert] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_final: bool = False


class Monitor:
    """Alerts once for each change of a run's status.

    Args:
        place: of the records.
        history: of the alerts, loaded.
        alerts: the channels.
        run_ids: of the runs; every run of the place if empty.
        stale_seconds: a heartbeat older than this is stale; what each record states if None.
    """

    def __init__(
        self,
        place: RecordPlace,
        history: AlertHistory,
        alerts: AlertManager,
        *,
        run_ids: tuple[str, ...] = (),
        stale_seconds: float | None = None,
    ) -> None:
        self._place = place
        self._history = history
        self._alerts = alerts
        self._run_ids = run_ids
        self._stale_seconds = stale_seconds
        self._waiting: dict[str, float] = {}

    def look(self, now: float) -> Round:
        """Read, assess and alert; `now` in Unix seconds."""
        found = Round()
        try:
            names = list(self._run_ids) or self._place.names()
        except CannotRead as error:
            found.problems.append(str(error))
            found.is_final = error.is_final
            return found
        if not self._run_ids:
            self._history.forget(names, now)
        if isinstance(self._place, RecordPrefix) and len(names) > 1:
            self._place.fetch_all(names)
        for name in names:
            self._look_at(name, now, found)
        try:
            self._history.save()
        except HistoryUnreadable as error:
            # Kept in memory, and written with the next round.
            found.problems.append(str(error))
        return found

    def _look_at(self, run_id: str, now: float, found: Round) -> None:
        try:
            folder = self._place.fetch(run_id)
        except CannotRead as error:
            # Not "no heartbeat": nothing follows from what could not be read.
            found.problems.append(f"{run_id}: {error}")
            found.is_final = found.is_final or error.is_final
            return
        except InvalidRunId as error:
            found.problems.append(str(error))
            found.is_final = True
            return
        if folder is None:
            found.missing.append(run_id)
            since = self._waiting.setdefault(run_id, now)
            stale = self._stale_seconds or 600.0
            if now - since <= stale:
                return
            reason = f"No heartbeat files: never started (>{stale / 60:g}m)"
            assessment = Assessment(run_id, TIMED_OUT, reason, "Check that the job started", now, stale)
        else:
            self._waiting.pop(run_id, None)
            is_copy = isinstance(self._place, RecordPrefix)
            assessment = assess(folder, now, self._stale_seconds, fetched=is_copy, run_id=run_id)
        assessment = _with_stall(assessment)
        found.runs.append(assessment)
        if assessment.status != UNKNOWN:
            self._alert(assessment, found)

    def _alert(self, assessment: Assessment, found: Round) -> None:
        channels: list[Channel] = []
        for channel in self._alerts.channels:
            if self._history.is_news(assessment, channel.name, asked=bool(self._run_ids)):
                channels.append(channel)
            else:
                self._history.given(assessment, channel.name)
        if not channels:
            return
        run_id = assessment.run_id
        alert = alert_about(assessment, where=self._place.where(run_id), console=self._place.console(run_id))
        failed = self._alerts.deliver(alert, channels)
        for channel in channels:
            # What was not sent stays news, for the next round.
            if channel.name not in failed:
                self._history.given(assessment, channel.name)
        found.problems += [f"{run_id}: not sent by {name}: {reason}" for name, reason in failed.items()]
        if len(failed) < len(channels):
            found.sent.append(alert)


def _with_stall(assessment: Assessment) -> Assessment:
    """Return the assessment with a warning where the run gives signs of life, and stands still beyond its budget."""
    if assessment.status != RUNNING or assessment.stall_seconds is None:
        return assessment
    minutes = max(1, round(assessment.stall_seconds / 60))
    reason = f"Stands still in phase {assessment.phase or 'train'} for {minutes}m"
    return replace(assessment, status=WARNING, reason=reason, action="Check what the training waits for")
