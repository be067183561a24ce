"""The end of an attempt that a shell script reports, where other evidence of its end has to be weighed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from trainwarden.exec.record_writer import record_ending
from trainwarden.identity import world_size
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, PROGRESS
from trainwarden.record.sentinels import Sentinel, current_completion, current_error
from trainwarden.shell.attempt import close_attempt, close_rank, early_end, values_of_attempt
from trainwarden.shell.command import CommandContext, NotRecorded, Superseded, change_record, publish
from trainwarden.shell.heartbeat import record_life
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, reconcile, signal_outcome
from trainwarden.training.termination import ReceivedSignal, signal_reason

__all__ = ["SUCCEEDED", "cancelled", "record_end"]


def cancelled(exit_code: int | None) -> AttemptOutcome:
    """Return the ending that a request to end makes, by its exit code; that of an interrupt if None."""
    now, number = time.time(), exit_code - 128 if exit_code and exit_code > 128 else signal.SIGINT
    return signal_outcome(ReceivedSignal(number, now, signal_reason(number, now)))


def record_end(context: CommandContext, ending: AttemptOutcome, step: int | None = None) -> list[str]:
    """Record how the attempt ended; returns warnings to print.

    Raises:
        NotRecorded: it has ended in another way before, or the record belongs to another process.
    """
    if context.rank != 0:
        return _end_rank(context, ending)
    names, warnings = change_record(context, lambda: _end_run(context, ending, step))
    return publish(context, names) + warnings


def _end_run(context: CommandContext, ending: AttemptOutcome, step: int | None) -> tuple[list[str], list[str]]:
    store, folder, key = context.store, Path(context.folder), str(context.key)
    try:
        values = values_of_attempt(context)
    except Superseded:
        if ending.status == "failed":
            # Beside the record of its successor: late evidence must not be taken for a failure of that.
            record_ending(store, context.key, ending, context.rank)
        raise
    error, completion = current_error(folder, key, None), current_completion(folder, key, None)
    if isinstance(completion, Sentinel):
        if ending.status == "succeeded":
            return [], ["this attempt has completed before"]
        raise NotRecorded(f"{folder}: this attempt has completed before; what comes after that is no part of it")
    if isinstance(error, Sentinel) and ending.status != "failed":
        raise NotRecorded(f"{folder}: this attempt has failed before: {error.message[:300]}")
    ending = reconcile(ending, folder, key, context.rank, time.time(), world_size=world_size())
    names, reason = [METADATA], ending.reason
    if ending.status == "failed":
        record_ending(store, context.key, ending, context.rank)
        names.insert(0, ERROR)
    elif ending.status == "succeeded":
        progress = store.values(PROGRESS)
        if step is None and progress.get("attempt_key") == key:
            step = progress.get("step")
        store.record_completion(key=key, step=step)
        names.append(COMPLETE)
        reason = early_end(step, progress.get("total_steps"))
    close_attempt(context, values, ending.status, reason)
    warnings = ["this attempt has failed before; its first failure counts"] if isinstance(error, Sentinel) else []
    return names, warnings


def _end_rank(context: CommandContext, ending: AttemptOutcome) -> list[str]:
    record_life(context)

    def end() -> None:
        if ending.status == "failed":
            record_ending(context.store, context.key, ending, context.rank)
        close_rank(context, ending.status)

    change_record(context, end)
    return publish(context, [ERROR] if ending.status == "failed" else [])
