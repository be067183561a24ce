"""The series of one run's logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.taxonomy import FAILURES
from trainwarden_exporter.collectors.logs import metrics
from trainwarden_exporter.collectors.logs.sheet import CachedSamples
from trainwarden_exporter.collectors.runs.view import believed
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from trainwarden.signals.model import Signal
    from trainwarden_exporter.collectors.logs.run import RunLogs

# Series of one run at most, whatever its pack holds.
PER_RUN = 1000


def add_logs(families: Families, logs: RunLogs, room: int, now: float) -> tuple[int, int]:
    """Add one run's series; returns how many series of signals there are and how many had no room."""
    run_id = logs.run.run_id
    written = [log.follower.modified for log in logs.logs.values() if log.follower.modified is not None]
    families.add(
        metrics.TRAINING_LOG_LAST_WRITE_TIMESTAMP_SECONDS, believed(max(written, default=None), now), run_id=run_id
    )
    families.add(
        metrics.TRAINING_LOG_SILENCE_THRESHOLD_SECONDS, logs.searcher.pack.inactivity_threshold_seconds, run_id=run_id
    )
    families.add(metrics.TRAINWARDEN_LOG_LAG_BYTES, sum(log.follower.lag for log in logs.logs.values()), run_id=run_id)
    families.add(metrics.TRAINWARDEN_LOG_SKIPPED_BYTES_TOTAL, logs.skipped, run_id=run_id)
    made_of = (dict(logs.counts), dict(logs.last), logs.run.ended, min(room, PER_RUN))
    if logs.sheet is None or logs.sheet.made_of != made_of:
        # Of thousands of runs few find a signal between two looks: the others' series are those of before.
        own = Families()
        shown, dropped = _add_signals(own, logs, min(room, PER_RUN), now)
        logs.sheet = CachedSamples(made_of, own.rows(), shown, dropped)
    families.extend(logs.sheet.rows)
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
        families.add(metrics.TRAINING_LOG_SIGNALS_TOTAL, found.get(name, 0), **labels)
        families.add(metrics.TRAINING_LOG_SIGNAL_LAST_TIMESTAMP_SECONDS, believed(logs.last.get(name), now), **labels)
    return len(shown), dropped


def _labels(signal: Signal, run_id: str) -> dict[str, str]:
    error_type = signal.error_type or (FAILURES[signal.failure].error_type if signal.failure else None)
    return {
        "run_id": run_id,
        "signal": label_text(signal.name),
        "error_type": label_text(error_type or ""),
        "role": signal.role,
    }
