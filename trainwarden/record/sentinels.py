"""`_error`, `_complete` and `_restart`: how an attempt ended, and who may believe it.

A sentinel speaks for the attempt whose key it carries and for no other. One without a key, plain text from another
tool, speaks for the attempt that was running when it was written.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwarden.record.clock import to_iso
from trainwarden.record.document import Document, FileContent, Unreadable, parse, read_document, read_file
from trainwarden.record.error import MAX_MESSAGE, MAX_TRACEBACK, error_document, shorten
from trainwarden.record.files import Metadata, read_metadata
from trainwarden.record.folder import COMPLETE, ERROR, RESTART, encode, write_json, write_temporary
from trainwarden.taxonomy import Failure

__all__ = [
    "MAX_MESSAGE", "MAX_TRACEBACK", "Announcement", "Sentinel", "Teller", "announce_restart", "announced_restart",
    "attempt_number", "current_completion", "current_error", "parse_sentinel", "read_sentinel", "record_completion",
    "record_failure", "run_state", "set_aside", "shorten",
]  # fmt: skip

Teller = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Sentinel:
    """What `_error` or `_complete` says; only `message` and `time` are known of a plain-text one."""

    time: float
    message: str
    attempt_key: str | None = None
    attempt: int | None = None
    rank: int | None = None
    host: str | None = None
    step: int | None = None
    exception_type: str | None = None
    error_type: str | None = None
    failure: str | None = None
    subsystem: str | None = None
    severity: str | None = None
    fault: str | None = None
    hint: str | None = None
    traceback: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class Announcement:
    """`_restart`: somebody is about to end the attempt `attempt_key` in order to start the next."""

    attempt_key: str
    reason: str | None
    intent: str | None
    time: float | None


def read_sentinel(path: Path) -> Sentinel | Unreadable | None:
    """What a sentinel says, whoever wrote it and about whichever attempt."""
    content = read_file(path)
    if not isinstance(content, FileContent):
        return content
    return parse_sentinel(content, path)


def parse_sentinel(content: FileContent, path: Path) -> Sentinel:
    """What a sentinel says that came from elsewhere; `path` is where it belongs."""
    document = parse(content, path)
    return _plain(content) if isinstance(document, Unreadable) else _structured(document)


def current_error(folder: Path, key: str | None, attempt_start: float | None) -> Sentinel | Unreadable | None:
    """The `_error` of the attempt `key` that began at `attempt_start`; None if that attempt left none.

    `Unreadable` is a sentinel that is there and cannot be read: not a failure, and not "none" either.
    """
    return _of_attempt(folder / ERROR, key, attempt_start)


def current_completion(folder: Path, key: str | None, attempt_start: float | None) -> Sentinel | Unreadable | None:
    """The `_complete` of the attempt `key` that began at `attempt_start`; see `current_error`."""
    return _of_attempt(folder / COMPLETE, key, attempt_start)


def run_state(metadata: Metadata | None, error: object, completion: object) -> str | None:
    """What the record says the run's state is, corrected by the sentinels of its attempt; None where nobody says."""
    if isinstance(error, Sentinel):
        return "failed"
    if isinstance(completion, Sentinel):
        return "succeeded"
    return metadata.status if metadata else None


def record_failure(
    folder: Path,
    *,
    key: str,
    failure: Failure,
    message: str,
    rank: int | None = None,
    exception_type: str | None = None,
    traceback: str | None = None,
    exit_code: int | None = None,
    host: str | None = None,
    when: float | None = None,
    tell: Teller | None = None,
) -> bool:
    """Write `_error` for the attempt `key`; the first writer wins, and False means that there was one before.

    An attempt that a newer one has replaced leaves `_error.<attempt>` instead: late evidence must not
    stain its successor. It happened on this host and now unless `host` and `when` (Unix seconds) say else.
    `tell` gets the file's name and content before it is written, for a copy elsewhere.

    Raises:
        OSError: the folder cannot be written.
    """
    metadata = read_metadata(folder)
    attempt = attempt_number(metadata, key)
    document = error_document(
        run_id=folder.name,
        attempt=attempt,
        key=key,
        failure=failure,
        message=message,
        rank=rank,
        exception_type=exception_type,
        traceback=traceback,
        exit_code=exit_code,
        host=host,
        when=when,
    )
    superseded = isinstance(metadata, Metadata) and attempt is not None and metadata.attempt_key != key
    path, content = folder / (f"{ERROR}.{attempt}" if superseded else ERROR), encode(document)
    if tell:
        tell(path.name, content)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = write_temporary(path, content, durable=True)
    try:
        return _link_first(temporary, path, key, superseded=superseded)
    finally:
        temporary.unlink(missing_ok=True)


def record_completion(folder: Path, *, key: str, step: int | None, tell: Teller | None = None) -> None:
    """Write `_complete` for the attempt `key`; `tell` as in `record_failure`.

    Raises:
        OSError: the folder cannot be written.
    """
    document = {
        "run_id": folder.name,
        "attempt": attempt_number(read_metadata(folder), key),
        "attempt_key": key,
        "time": to_iso(time.time()),
        "step": step,
    }
    if tell:
        tell(COMPLETE, encode(document))
    write_json(folder / COMPLETE, document, durable=True)


def announce_restart(folder: Path, key: str, reason: str, intent: str | None = None) -> None:
    """Say, before ending the attempt `key`, that a restart is why: the dying process then records `cancelled`.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = to_iso(time.time())
    document = {"attempt_key": key, "reason": shorten(reason, MAX_MESSAGE), "intent": intent, "time": now}
    write_json(folder / RESTART, document, durable=True)


def announced_restart(folder: Path, key: str) -> Announcement | None:
    """The announcement that the attempt `key` will be ended by a restart, if there is one."""
    document = read_document(folder / RESTART)
    if not isinstance(document, Document) or document.text("attempt_key") != key:
        return None
    return Announcement(key, document.text("reason"), document.text("intent"), document.time("time"))


def set_aside(folder: Path, metadata: Metadata | Unreadable | None, key: str, *, begun_before: bool) -> None:
    """Rename the sentinels that attempts before this start left; a rank of this one may have written its own already.

    Args:
        folder: of the run.
        metadata: as it was before this start.
        key: of the attempt that starts.
        begun_before: whether `key` was in the record before: then its old sentinels are no longer true.

    Raises:
        OSError: the folder cannot be written.
    """
    for name in (ERROR, COMPLETE):
        sentinel = read_sentinel(folder / name)
        if sentinel is None or (isinstance(sentinel, Sentinel) and sentinel.attempt_key == key and not begun_before):
            continue
        owner = sentinel.attempt_key if isinstance(sentinel, Sentinel) else None
        number = attempt_number(metadata, owner) if owner else None
        if number is None:
            number = metadata.attempt if isinstance(metadata, Metadata) and metadata.attempt is not None else 0
        (folder / name).replace(folder / f"{name}.{number}")
    if begun_before:
        (folder / RESTART).unlink(missing_ok=True)


def attempt_number(metadata: Metadata | Unreadable | None, key: str) -> int | None:
    """The number that the record gives to the attempt `key`; None if it knows no such attempt."""
    if not isinstance(metadata, Metadata):
        return None
    return next((attempt.attempt for attempt in metadata.attempts if attempt.key == key), None)


def _of_attempt(path: Path, key: str | None, attempt_start: float | None) -> Sentinel | Unreadable | None:
    sentinel = read_sentinel(path)
    if not isinstance(sentinel, Sentinel):
        return sentinel
    if sentinel.attempt_key is not None and key is not None:
        return sentinel if sentinel.attempt_key == key else None
    return sentinel if attempt_start is None or sentinel.time > attempt_start else None


def _link_first(temporary: Path, path: Path, key: str, *, superseded: bool) -> bool:
    # A link never replaces, so of two ranks that fail together exactly one gets through.
    for _ in range(3):
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:  # noqa: PERF203  # three rounds at most
            existing = read_sentinel(path)
            if superseded or (isinstance(existing, Sentinel) and existing.attempt_key == key):
                return False
            _move_older_away(path, existing)
        except OSError:
            break
    # A file system without links, or others keep getting in between: the evidence matters more than being first.
    temporary.replace(path)
    return True


def _move_older_away(path: Path, existing: Sentinel | Unreadable | None) -> None:
    number = existing.attempt if isinstance(existing, Sentinel) else None
    if number is None:
        metadata = read_metadata(path.parent)
        owner = existing.attempt_key if isinstance(existing, Sentinel) else None
        known = attempt_number(metadata, owner) if owner else None
        number = known if known is not None else 0
    with contextlib.suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.{number}"))


def _plain(content: FileContent) -> Sentinel:
    text = content.data.decode("utf-8", "replace").strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    is_traceback = bool(lines) and lines[0].startswith("Traceback")
    message = (lines[-1] if is_traceback else lines[0]) if lines else ""
    return Sentinel(
        time=content.modified,
        message=shorten(message, MAX_MESSAGE),
        traceback=shorten(text, MAX_TRACEBACK) if len(lines) > 1 else None,
    )


def _structured(document: Document) -> Sentinel:
    stated = document.time("time")
    return Sentinel(
        time=document.modified if stated is None else stated,
        message=shorten(document.text("message") or "", MAX_MESSAGE),
        attempt_key=document.text("attempt_key"),
        attempt=document.integer("attempt"),
        rank=document.integer("rank"),
        host=document.text("host"),
        step=document.integer("step"),
        exception_type=document.text("exception_type"),
        error_type=document.text("error_type"),
        failure=document.text("failure"),
        subsystem=document.text("subsystem"),
        severity=document.text("severity"),
        fault=document.text("fault"),
        hint=document.text("hint"),
        traceback=document.text("traceback"),
        exit_code=document.integer("exit_code"),
    )
