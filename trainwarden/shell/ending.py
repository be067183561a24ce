"""The last word of a shell script about an attempt."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from trainwarden.record.folder import COMPLETE, ERROR, METADATA, PROGRESS, RANKS
from trainwarden.record.locks import writing
from trainwarden.record.sentinels import Sentinel, current_completion, current_error, record_completion
from trainwarden.shell.completion import early
from trainwarden.shell.failure import Told
from trainwarden.shell.not_recorded import NotRecorded, Superseded
from trainwarden.shell.publication import publish
from trainwarden.shell.record import close, close_rank, metadata_of_attempt, read, say
from trainwarden.shell.speaker import Speaker
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, reconcile, signal_outcome
from trainwarden.training.termination import ReceivedSignal, signal_reason
from trainwarden.wrapper.witness import record_ending

__all__ = ["SUCCEEDED", "cancelled", "failed", "record_end"]


def failed(told: Told) -> AttemptOutcome:
    """The ending that a failure makes."""
    return AttemptOutcome("failed", told.message, told.failure, told.exception_type, told.traceback, told.exit_code)


def cancelled(exit_code: int | None) -> AttemptOutcome:
    """The ending that a request to end makes, of which an exit code tells; that of an interrupt where none does."""
    now, number = time.time(), exit_code - 128 if exit_code and exit_code > 128 else signal.SIGINT
    return signal_outcome(ReceivedSignal(number, now, signal_reason(number, now)))


def record_end(speaker: Speaker, ending: AttemptOutcome, step: int | None = None) -> list[str]:
    """Record how the attempt ended; returns what is worth a word.

    Raises:
        NotRecorded: it has ended in another way before, or the record belongs to somebody else.
    """
    try:
        if speaker.rank != 0:
            return _end_rank(speaker, ending)
        Path(speaker.folder, RANKS).mkdir(parents=True, exist_ok=True)
        with writing(speaker.folder):
            return _end_first(speaker, ending, step)
    except OSError as error:
        raise NotRecorded(f"{error.filename or speaker.folder}: {error.strerror or error}") from None


def _end_first(speaker: Speaker, ending: AttemptOutcome, step: int | None) -> list[str]:
    folder, key = Path(speaker.folder), str(speaker.key)
    try:
        metadata = metadata_of_attempt(speaker)
    except Superseded:
        if ending.status == "failed":
            # Beside the record of its successor, which it must not stain.
            record_ending(folder, speaker.key, ending, speaker.rank)
        raise
    error, completion = current_error(folder, key, None), current_completion(folder, key, None)
    if isinstance(completion, Sentinel):
        if ending.status == "succeeded":
            return ["this attempt has said so before"]
        raise NotRecorded(f"{folder}: this attempt has completed before; what comes after that is no part of it")
    if isinstance(error, Sentinel) and ending.status != "failed":
        raise NotRecorded(f"{folder}: this attempt has failed before: {error.message[:300]}")
    ending = reconcile(ending, folder, key, speaker.rank, time.time())
    names = [METADATA]
    if ending.status == "failed":
        record_ending(folder, speaker.key, ending, speaker.rank)
        names.insert(0, ERROR)
    elif ending.status == "succeeded":
        progress = read(speaker.folder, PROGRESS)
        reached = progress.get("step") if progress.get("attempt_key") == key else None
        record_completion(folder, key=key, step=step if step is not None else reached)
        names.append(COMPLETE)
        said = early(step if step is not None else reached, progress.get("total_steps"))
        ending = AttemptOutcome(ending.status, said.get("reason"))
    close(speaker, metadata, ending.status, ending.reason)
    words = ["this attempt has failed before; its first failure counts"] if isinstance(error, Sentinel) else []
    return publish(speaker, names) + words


def _end_rank(speaker: Speaker, ending: AttemptOutcome) -> list[str]:
    say(speaker)
    if ending.status == "failed":
        record_ending(Path(speaker.folder), speaker.key, ending, speaker.rank)
    close_rank(speaker, ending.status)
    return publish(speaker, [ERROR] if ending.status == "failed" else [])
