"""`_error`, `_complete` and `_restart`: how an attempt ended.

A sentinel is evidence about the attempt whose key it carries and about no other. One without a key, plain text from
another tool, is about the attempt that was running when it was written.
"""

# ruff: noqa: PTH118

from __future__ import annotations

import math
import os
import time

from trainwarden.identity import host_name
from trainwarden.record.document import FileContent, JsonObject, Unreadable, parse_json, read_file, read_json
from trainwarden.record.folder import COMPLETE, ERROR, RESTART
from trainwarden.record.metadata import Metadata
from trainwarden.record.schema import INTEGER, MAX_MESSAGE, TEXT, TIME, RecordDocument, key, required, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Self

    from trainwarden.failures.failure import Failure

MAX_TRACEBACK = 64_000
# So long after its announcement a restart may still be why an attempt is ended: the process may have a long grace
# period. One that did not come must not explain a later, unrelated end.
GRACE_SECONDS = 1800.0


class Sentinel(RecordDocument):
    """`_error` or `_complete`; a plain-text one has only `message` and `time`."""

    time: float = required(TIME)
    message: str = key(JsonObject.text, default="")
    run_id: str | None = TEXT
    attempt: int | None = INTEGER
    attempt_key: str | None = TEXT
    rank: int | None = INTEGER
    host: str | None = TEXT
    step: int | None = INTEGER
    exception_type: str | None = TEXT
    error_type: str | None = TEXT
    failure: str | None = TEXT
    subsystem: str | None = TEXT
    severity: str | None = TEXT
    fault: str | None = TEXT
    hint: str | None = TEXT
    traceback: str | None = TEXT
    exit_code: int | None = INTEGER

    @property
    def told(self) -> str:
        """The message as Python prints it, after its type: that of a KeyError alone is only a name in quotes."""
        kind = self.exception_type
        if kind in (None, "", "SystemExit") or self.message.startswith(str(kind)):
            return self.message
        return f"{kind}: {self.message}"

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | JsonObject) -> Self:
        """Return the sentinel that a JSON object spells; its time is that of the file where it states none."""
        source = values if isinstance(values, JsonObject) else JsonObject(values)
        sentinel = super().from_json(source)
        stated = sentinel.__dict__.get("time")
        return sentinel.replace(
            time=source.modified if stated is None else stated, message=shorten(sentinel.message, MAX_MESSAGE)
        )

    @classmethod
    def from_text(cls, content: FileContent) -> Self:
        """Return the sentinel that plain text of another tool stands for: a message, or a whole traceback."""
        text = content.data.decode("utf-8", "replace").strip()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        is_traceback = bool(lines) and lines[0].startswith("Traceback")
        message = (lines[-1] if is_traceback else lines[0]) if lines else ""
        return cls(
            time=content.modified,
            message=shorten(message, MAX_MESSAGE),
            traceback=shorten(text, MAX_TRACEBACK) if len(lines) > 1 else None,
        )


class RestartNotice(RecordDocument):
    """`_restart`: the attempt `attempt_key` is about to be ended so that the next one can start.

    `checkpoint_trust`: what counts as a complete checkpoint to the next one, by the policy that restarts it.
    """

    attempt_key: str = required(TEXT)
    reason: str | None = TEXT
    intent: str | None = TEXT
    time: float | None = TIME
    checkpoint_trust: str | None = TEXT

    def __str__(self) -> str:
        reason = " ".join((self.reason or "unknown").split())
        return f"restarted by Trainwarden: incident {self.intent or 'unknown'}, reason: {reason}"


def failure_sentinel(
    *,
    run_id: str,
    attempt: int | None,
    key: str,
    failure: Failure,
    message: str,
    rank: int | None = None,
    exception_type: str | None = None,
    traceback: str | None = None,
    exit_code: int | None = None,
    host: str | None = None,
    when: float | None = None,
) -> Sentinel:
    """Return the `_error` of the attempt `key`; on this host and now unless `host` and `when` (Unix seconds) differ."""
    from trainwarden.failures.out_of_memory import suggestion  # noqa: PLC0415  # few need it: it takes long to load

    return Sentinel(
        time=time.time() if when is None else when,
        message=shorten(message, MAX_MESSAGE),
        run_id=run_id,
        attempt=attempt,
        attempt_key=key,
        rank=rank,
        host=host or host_name(),
        exception_type=exception_type,
        error_type=failure.error_type,
        failure=failure.slug,
        subsystem=failure.subsystem,
        severity=failure.severity,
        fault=failure.fault,
        hint=suggestion(failure, message),
        traceback=traceback and shorten(traceback, MAX_TRACEBACK),
        exit_code=exit_code,
    )


def read_sentinel(path: str | os.PathLike[str]) -> Sentinel | Unreadable | None:
    """Return the sentinel of a file, by whichever writer and about whichever attempt; None if there is no file."""
    content = read_file(path)
    return parse_sentinel(content, path) if isinstance(content, FileContent) else content


def parse_sentinel(content: FileContent, path: str | os.PathLike[str]) -> Sentinel:
    """Return the sentinel whose content came from elsewhere; `path` is where it belongs."""
    source = parse_json(content, path)
    return Sentinel.from_json(source) if isinstance(source, JsonObject) else Sentinel.from_text(content)


def current_error(
    folder: str | os.PathLike[str], key: str | None, attempt_start: float | None
) -> Sentinel | Unreadable | None:
    """Return the `_error` of the attempt `key` that began at `attempt_start`; None if that attempt left none.

    `Unreadable` is a sentinel that is there and cannot be read: not a failure, and not "none" either.
    """
    return of_attempt(read_sentinel(os.path.join(folder, ERROR)), key, attempt_start)


def current_completion(
    folder: str | os.PathLike[str], key: str | None, attempt_start: float | None
) -> Sentinel | Unreadable | None:
    """Return the `_complete` of the attempt `key` that began at `attempt_start`; see `current_error`."""
    return of_attempt(read_sentinel(os.path.join(folder, COMPLETE)), key, attempt_start)


def requested_trust(folder: str | os.PathLike[str]) -> str | None:
    """Return what counts as a complete checkpoint, by the policy of the last announced restart; None if unset."""
    source = read_json(os.path.join(folder, RESTART))
    return RestartNotice.from_json(source).checkpoint_trust if isinstance(source, JsonObject) else None


def announced_restart(folder: str | os.PathLike[str], key: str) -> RestartNotice | None:
    """Return the notice that the attempt `key` will be ended by a restart; None if there is none."""
    source = read_json(os.path.join(folder, RESTART))
    if not isinstance(source, JsonObject) or source.text("attempt_key") != key:
        return None
    return RestartNotice.from_json(source)


def announcement_age(folder: str | os.PathLike[str], key: str) -> float:
    """Return how many seconds ago a restart of the attempt `key` was announced; infinite where none was."""
    restart = announced_restart(folder, key)
    return math.inf if restart is None or restart.time is None else abs(time.time() - restart.time)


def run_state(metadata: Metadata | None, error: object, completion: object) -> str | None:
    """Return the run's state: that of its metadata, corrected by the sentinels of its attempt; None if not stated."""
    if isinstance(error, Sentinel):
        return "failed"
    if isinstance(completion, Sentinel):
        return "succeeded"
    return metadata.status if metadata else None


def attempt_number(metadata: Metadata | Unreadable | None, key: str | None) -> int | None:
    """Return the number that the record gives to the attempt `key`; None if it lists no such attempt."""
    return metadata.number_of(key) if isinstance(metadata, Metadata) and key else None


def of_attempt(
    sentinel: Sentinel | Unreadable | None, key: str | None, attempt_start: float | None
) -> Sentinel | Unreadable | None:
    """Return the sentinel if it is about the attempt `key` that began at `attempt_start`; see `current_error`."""
    if not isinstance(sentinel, Sentinel):
        return sentinel
    if sentinel.attempt_key is not None and key is not None:
        return sentinel if sentinel.attempt_key == key else None
    return sentinel if attempt_start is None or sentinel.time > attempt_start else None
