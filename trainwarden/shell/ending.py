"""The last word of a shell script about an attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwarden.classify import classify_exit, classify_message
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, PROGRESS, RANKS
from trainwarden.record.locks import writing
from trainwarden.record.sentinels import (
    MAX_MESSAGE,
    Sentinel,
    current_completion,
    current_error,
    record_completion,
    shorten,
)
from trainwarden.shell.arguments import Misuse
from trainwarden.shell.completion import early
from trainwarden.shell.publication import publish
from trainwarden.shell.record import NotRecorded, Superseded, metadata_of_attempt, read, say, write
from trainwarden.shell.speaker import Speaker
from trainwarden.taxonomy import ERROR_TYPES, FAILURES, Failure
from trainwarden.training.endings import SUCCEEDED, Ending, of_signal, settle
from trainwarden.training.termination import Received, reason_for
from trainwarden.wrapper.tail import Tail
from trainwarden.wrapper.witness import record_ending

__all__ = ["SUCCEEDED", "failure_of", "record_end"]


def failure_of(message: bytes, options: Mapping[str, Any]) -> Ending:
    """The ending that `trainwarden fail` tells of. Raises Misuse."""
    code = options.get("exit-code")
    by_code = classify_exit(code) if code else None
    named = _named(options)
    if named is None and by_code is not None and by_code.error_type == "cancelled" and code is not None:
        now = time.time()
        return of_signal(Received(code - 128, now, reason_for(code - 128, now)))
    tail = Tail()
    tail.add(message)
    trace = tail.trace()
    text = message.decode("utf-8", "replace").strip()
    if trace:
        text = f"{trace.exception_type}: {trace.message}" if trace.exception_type else trace.message
    failure = named or classify_message(text) or by_code or FAILURES["user_exception" if trace else "nonzero_exit"]
    kind, whole = (trace.exception_type, trace.text) if trace else (None, None)
    return Ending("failed", text or "the script said no more", failure, kind, whole, code)


def record_end(speaker: Speaker, ending: Ending, step: int | None = None) -> list[str]:
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


def _end_first(speaker: Speaker, ending: Ending, step: int | None) -> list[str]:
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
    ending = settle(ending, folder, key, speaker.rank, time.time())
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
        ending = Ending(ending.status, said.get("reason"))
    _close_metadata(speaker, metadata, ending)
    _close_rank(speaker, ending.status)
    words = ["this attempt has failed before; its first failure counts"] if isinstance(error, Sentinel) else []
    return publish(speaker, names) + words


def _end_rank(speaker: Speaker, ending: Ending) -> list[str]:
    say(speaker)
    if ending.status == "failed":
        record_ending(Path(speaker.folder), speaker.key, ending, speaker.rank)
    _close_rank(speaker, ending.status)
    return publish(speaker, [ERROR] if ending.status == "failed" else [])


def _close_metadata(speaker: Speaker, metadata: dict[str, Any], ending: Ending) -> None:
    now = to_iso(time.time())
    changes: dict[str, Any] = {"status": ending.status, "last_update": now, "end_time": now}
    if ending.status == "succeeded":
        changes.update(phase="done", phase_time=now)
    if ending.reason:
        changes["reason"] = " ".join(shorten(ending.reason, MAX_MESSAGE).split())
    write(speaker.folder, METADATA, {**metadata, **changes})


def _close_rank(speaker: Speaker, status: str) -> None:
    name = f"{RANKS}/{speaker.rank}.json"
    known = read(speaker.folder, name)
    if known.get("attempt_key") != str(speaker.key):
        known = {"rank": speaker.rank, "host": speaker.host, "attempt_key": str(speaker.key)}
    write(speaker.folder, name, {**known, "status": status, "time": to_iso(time.time())})


def _named(options: Mapping[str, Any]) -> Failure | None:
    slug, kind = options.get("failure"), options.get("error-type")
    if slug and kind:
        raise Misuse("--failure and --error-type: one of them was expected")
    if slug and slug not in FAILURES:
        raise Misuse(f"--failure {slug[:80]!r}: one of these was expected: {', '.join(sorted(FAILURES))}")
    if kind and kind not in ERROR_TYPES:
        raise Misuse(f"--error-type {kind[:80]!r}: one of these was expected: {', '.join(sorted(ERROR_TYPES))}")
    if slug:
        return FAILURES[slug]
    return next((failure for failure in FAILURES.values() if failure.error_type == kind), None) if kind else None
