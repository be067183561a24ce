"""The samples of one run's logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.redaction import label_text
from trainwarden.signals.diagnosis import error_type_of
from trainwarden_exporter.collectors.logs import metrics
from trainwarden_exporter.collectors.runs.record import plausible_timestamp
from trainwarden_exporter.core.metric import CachedSamples, Families

if TYPE_CHECKING:
    from trainwarden.signals.model import Signal
    from trainwarden_exporter.collectors.logs.run_logs import RunLogs

# Limit of one run, whatever its pack holds.
MAX_SIGNALS_PER_RUN = 1000


def add_logs(families: Families, logs: RunLogs, room: int, now: float) -> tuple[int, int]:
    """Add the samples of one run; return how many signals are shown, `room` at most, and how many are left out."""
    run_id = logs.run.run_id
    written = [log.written for log in logs.logs.values() if log.written is not None]
    last_write = plausible_timestamp(max(written, default=None), now)
    families.add(metrics.TRAINING_LOG_LAST_WRITE_TIMESTAMP_SECONDS, last_write, run_id=run_id)
    families.add(
        metrics.TRAINING_LOG_SILENCE_THRESHOLD_SECONDS, logs.searcher.pack.inactivity_threshold_seconds, run_id=run_id
    )
    families.add(metrics.TRAINWARDEN_LOG_LAG_BYTES, sum(log.follower.lag for log in logs.logs.values()), run_id=run_id)
    families.add(metrics.TRAINWARDEN_LOG_SKIPPED_BYTES_TOTAL, logs.skipped, run_id=run_id)
    for state, seen in ({} if logs.run.ended else logs.states).items():
        signal = seen.match.signal
        families.add(
            metrics.TRAINING_LOG_STATE_TIMESTAMP_SECONDS,
            plausible_timestamp(seen.time, now),
            run_id=run_id,
            attempt=logs.run.values.get("attempt", ""),
            state=state,
            signal=label_text(signal.name),
            error_type=label_text(error_type_of(signal) or ""),
        )
    room = min(room, MAX_SIGNALS_PER_RUN)
    made_from = (dict(logs.counts), dict(logs.last), logs.run.ended, room)
    if logs.cached is None or logs.cached[0].made_from != made_from:
        # Of thousands of runs few find a signal between two rounds: the samples of the others are reused.
        own = Families()
        shown, dropped = _add_signals(own, logs, room, now)
        logs.cached = (CachedSamples(made_from, own.columns()), shown, dropped)
    samples, shown, dropped = logs.cached
    families.extend(samples.columns)
    return shown, dropped


def _add_signals(families: Families, logs: RunLogs, room: int, now: float) -> tuple[int, int]:
    """Add the signals that were found, then a 0 for each other root signal: a rate needs a value to rise from."""
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
        last = plausible_timestamp(logs.last.get(name), now)
        families.add(metrics.TRAINING_LOG_SIGNAL_LAST_TIMESTAMP_SECONDS, last, **labels)
    return len(shown), dropped


def _labels(signal: Signal, run_id: str) -> dict[str, str]:
    return {
        "run_id": run_id,
        "signal": label_text(signal.name),
        "error_type": label_text(error_type_of(signal) or ""),
        "role": signal.role,
    }
