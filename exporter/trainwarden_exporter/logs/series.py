"""The series of one run's logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.taxonomy import FAILURES
from trainwarden_exporter.catalog import Families
from trainwarden_exporter.logs.sheet import Sheet
from trainwarden_exporter.redaction import label_text
from trainwarden_exporter.runs.view import believed

if TYPE_CHECKING:
    from trainwarden.signals.model import Signal
    from trainwarden_exporter.logs.run import RunLogs

# Series of one run at most, whatever its pack holds.
PER_RUN = 1000


def add_logs(families: Families, logs: RunLogs, room: int, now: float) -> tuple[int, int]:
    """Add one run's series; returns how many series of signals there are and how many had no room."""
    run_id = logs.run.run_id
    written = [log.follower.modified for log in logs.logs.values() if log.follower.modified is not None]
    families.add("training_log_last_write_timestamp_seconds", believed(max(written, default=None), now), run_id=run_id)
    families.add(
        "training_log_silence_threshold_seconds", logs.searcher.pack.inactivity_threshold_seconds, run_id=run_id
    )
    families.add("trainwarden_log_lag_bytes", sum(log.follower.lag for log in logs.logs.values()), run_id=run_id)
    families.add("trainwarden_log_skipped_bytes_total", logs.skipped, run_id=run_id)
    made_of = (dict(logs.counts), dict(logs.last), logs.run.ended, min(room, PER_RUN))
    if logs.sheet is None or logs.sheet.made_of != made_of:
        # Of thousands of runs few find a signal between two looks: the others' series are those of before.
        own = Families()
        shown, dropped = _add_signals(own, logs, min(room, PER_RUN), now)
        logs.sheet = Sheet(made_of, own.rows(), shown, dropped)
    families.take(logs.sheet.rows)
    return logs.sheet.shown, logs.sheet.dropped


def _add_signals(families: Families, logs: RunLogs, room: int, now: float) -> tuple[int, int]:
    """What was found, then the zeros of what may be found: a first event shows as a rise only where there was a 0."""
    found = {name: count for name, count in logs.counts.items() if name in logs.searcher.signals}
    zeros = [] if logs.run.ended else [one for one in logs.searcher.pack.signals if one.role == "root"]
    names = list(dict.fromkeys((*found, *(one.name for one in zeros))))
    shown: set[tuple[tuple[str, str], ...]] = set()
    dropped = 0
    for name in names:
        labels = _labels(logs.searcher.signals[name], logs.run.run_id)
        key = tuple(labels.items())
        if len(shown) >= room or key in shown:
            dropped += 1
            continue
        shown.add(key)
        families.add("training_log_signals_total", found.get(name, 0), **labels)
        families.add("training_log_signal_last_timestamp_seconds", believed(logs.last.get(name), now), **labels)
    return len(shown), dropped


def _labels(signal: Signal, run_id: str) -> dict[str, str]:
    error_type = signal.error_type or (FAILURES[signal.failure].error_type if signal.failure else None)
    return {
        "run_id": run_id,
        "signal": label_text(signal.name),
        "error_type": label_text(error_type or ""),
        "role": signal.role,
    }
