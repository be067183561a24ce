"""The files of one run's record: how they are replaced, locked, copied elsewhere and set aside.

The library, `trainwarden exec`, the local launcher and the shell commands all write through a `RecordStore`. Shell
commands load this: `dataclasses`, `pathlib`, `logging` and `contextlib` take too long to import.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH119, PTH120, SIM105

from __future__ import annotations

import json
import os
import time

from trainwarden.record.document import JsonObject, Unreadable, read_json
from trainwarden.record.folder import (
    COMPLETE,
    ERROR,
    RANKS,
    RESTART,
    encode,
    replace_file,
    write_temporary,
)
from trainwarden.record.locks import WriteLock
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.schema import MAX_MESSAGE, shorten
from trainwarden.record.sentinels import RestartNotice, Sentinel, attempt_number, failure_sentinel, read_sentinel

# The failure of an attempt that was ended from outside, before the rank that caused it has recorded why.
UNKNOWN_END = "terminated"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any, Protocol

    from trainwarden.failures.failure import Failure
    from trainwarden.record.schema import RecordDocument

    class RecordCopy(Protocol):
        """Copies the files of a record to another place, in a thread of its own.

        The thread that writes the run's liveness calls it, so no method waits for a network but `fetch()`,
        `fetch_error()` and `close()`, and none raises. Names are those of the files in the run's folder, such as
        `metadata.json`.
        """

        def put(self, name: str, content: bytes) -> None:
            """Replace a file by `content`; only the latest content of a name counts."""

        def put_file(self, name: str, path: Path) -> None:
            """Replace a file by what `path` holds when it is copied."""

        def remove(self, name: str) -> None:
            """Remove a sentinel of this attempt; what is put under its name later stays."""

        def fetch(self, names: tuple[str, ...], timeout_seconds: float) -> dict[str, bytes]:
            """Return the content of files in the copy; an absent one is left out, and all if it does not answer."""

        def state(self) -> dict[str, Any]:
            """Return `s3` of `metadata.json`: strict JSON."""

        def fetch_error(self, timeout_seconds: float) -> None:
            """Write the `_error` of this attempt into the folder where only the copy holds one, of another node."""

        def close(self, timeout_seconds: float) -> bool:
            """Finish what is waiting; False if that could not be done in time. Nothing is taken after."""


class RecordStore:
    """Reads and writes the files of one run's folder by their names.

    What lies in `ranks/` is not copied: only this host uses it.

    Args:
        folder: of the run.
        copy: a second place that the record is kept in.
    """

    def __init__(self, folder: str | os.PathLike[str], copy: RecordCopy | None = None) -> None:
        self.folder = os.fspath(folder)
        self._copy = copy

    @property
    def run_id(self) -> str:
        """The name of the run: that of its folder."""
        return os.path.basename(self.folder)

    @property
    def has_copy(self) -> bool:
        """Whether there is a copy elsewhere."""
        return self._copy is not None

    def path(self, name: str) -> str:
        """Return where a file is."""
        return os.path.join(self.folder, name)

    def make_folder(self) -> None:
        """Create the folder of the run and that of its ranks.

        Raises:
            OSError: they cannot be created.
        """
        os.makedirs(self.path(RANKS), exist_ok=True)

    def locked(self) -> WriteLock:
        """Return the lock to hold while a file that several processes write is read, changed and written."""
        return WriteLock(self.folder)

    def values(self, name: str) -> dict[str, Any]:
        """Return the JSON object that a file holds, with the keys of other tools; empty if it holds none."""
        source = read_json(self.path(name))
        return dict(source.values) if isinstance(source, JsonObject) else {}

    def write(self, name: str, document: RecordDocument, *, durable: bool = False) -> None:
        """Replace a file that this process alone writes. It is copied even where the folder cannot be written.

        Args:
            name: of the file.
            document: its new content.
            durable: write it through to the disk.

        Raises:
            OSError: the folder cannot be written.
        """
        content = _encode(document.to_json())
        self.put(name, content)
        self._replace(name, content, durable=durable)

    def update(self, name: str, values: Mapping[str, Any], changes: RecordDocument) -> dict[str, Any]:
        """Replace a file that other processes write as well; call it in `locked()`.

        Args:
            name: of the file.
            values: that it held. The keys of other tools are kept.
            changes: fields that are new.

        Returns:
            The values that it holds now.

        Raises:
            OSError: the folder cannot be written; the copy gets the content.
        """
        merged = {**values, **changes.to_json()}
        content = _encode(merged)
        try:
            self._replace(name, content)
        except OSError:
            self.put(name, content)
            raise
        # The copy reads the file later: the training may have replaced it by then.
        self.put_file(name)
        return merged

    def record_failure(
        self,
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
    ) -> bool:
        """Write `_error` for the attempt `key`; the first writer wins, and False means that there was one before.

        One of unknown cause, by a rank that its launcher ended, is replaced by the first that names a failure.

        An attempt that a newer one has replaced leaves `_error.<attempt>` instead: late evidence must not be taken for
        a failure of its successor. It happened on this host and now unless `host` and `when` (Unix seconds) differ.

        Raises:
            OSError: the folder cannot be written.
        """
        metadata = read_metadata(self.folder)
        attempt = attempt_number(metadata, key)
        sentinel = failure_sentinel(
            run_id=self.run_id,
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
        name, content = f"{ERROR}.{attempt}" if superseded else ERROR, encode(sentinel.to_json())
        self.put(name, content)
        os.makedirs(self.folder, exist_ok=True)
        temporary = write_temporary(self.path(name), content, durable=True)
        try:
            return self._link_first(temporary, name, sentinel, superseded=superseded)
        finally:
            _unlink(temporary)

    def record_completion(self, *, key: str, step: int | None) -> None:
        """Write `_complete` for the attempt `key`.

        Raises:
            OSError: the folder cannot be written.
        """
        attempt = attempt_number(read_metadata(self.folder), key)
        sentinel = Sentinel(time=time.time(), run_id=self.run_id, attempt=attempt, attempt_key=key, step=step)
        self.write(COMPLETE, sentinel, durable=True)

    def withdraw(self, sentinel: str) -> None:
        """Remove `_error` or `_complete`, where the process that started the attempt saw how it really ended.

        Raises:
            OSError: the folder cannot be written.
        """
        self._call_copy(lambda copy: copy.remove(sentinel), sentinel)
        _unlink(self.path(sentinel))

    def announce_restart(
        self, key: str, reason: str, intent: str | None = None, checkpoint_trust: str | None = None
    ) -> None:
        """Write, before the attempt `key` is ended for a restart, why: the dying process then records `cancelled`.

        Raises:
            OSError: the folder cannot be written.
        """
        notice = RestartNotice(key, shorten(reason, MAX_MESSAGE), intent, time.time(), checkpoint_trust)
        os.makedirs(self.folder, exist_ok=True)
        replace_file(self.path(RESTART), encode(notice.to_json()), durable=True)

    def set_sentinels_aside(self, metadata: Metadata | Unreadable | None, key: str, *, begun_before: bool) -> None:
        """Rename the sentinels of earlier attempts; a rank of the new one may have written its own already.

        Args:
            metadata: as it was before this start.
            key: of the attempt that starts.
            begun_before: whether `key` was in the record before: then its old sentinels are no longer true.

        Raises:
            OSError: the folder cannot be written.
        """
        for name in (ERROR, COMPLETE):
            sentinel = read_sentinel(self.path(name))
            owner = sentinel.attempt_key if isinstance(sentinel, Sentinel) else None
            if sentinel is None or (owner == key and not begun_before):
                continue
            number = attempt_number(metadata, owner)
            if number is None:
                number = metadata.attempt if isinstance(metadata, Metadata) and metadata.attempt is not None else 0
            os.replace(self.path(name), self.path(f"{name}.{number}"))
        if begun_before:
            _unlink(self.path(RESTART))

    def put(self, name: str, content: bytes) -> None:
        """Queue content for the copy alone."""
        self._call_copy(lambda copy: copy.put(name, content), name)

    def put_file(self, name: str) -> None:
        """Queue a file for the copy, which reads it later."""
        if self._copy is not None:
            from pathlib import Path  # noqa: PLC0415  # see above

            path = Path(self.path(name))
            self._call_copy(lambda copy: copy.put_file(name, path), name)

    def copy_state(self) -> dict[str, Any] | None:
        """Return `s3` of `metadata.json`; None where there is no copy."""
        state: dict[str, Any] | None = self._call_copy(lambda copy: copy.state())
        return state

    def fetch(self, names: tuple[str, ...], timeout_seconds: float) -> dict[str, bytes]:
        """Return the content of files as the copy has them, of another node; what it lacks is left out."""
        found: dict[str, bytes] | None = self._call_copy(lambda copy: copy.fetch(names, timeout_seconds))
        return found or {}

    def fetch_error(self, timeout_seconds: float) -> None:
        """Write the `_error` of this attempt into the folder where only the copy holds one, of another node."""
        self._call_copy(lambda copy: copy.fetch_error(timeout_seconds))

    def close(self, timeout_seconds: float) -> bool:
        """Let the copy finish what is waiting; False if that could not be done in time."""
        return self._call_copy(lambda copy: copy.close(timeout_seconds)) is not False

    def _call_copy(self, call: Callable[[RecordCopy], Any], name: str = "") -> Any:
        if self._copy is None or name.startswith(f"{RANKS}/"):
            return None
        try:
            return call(self._copy)
        except Exception:  # its contract is not to raise; the record here must not depend on that
            import logging  # noqa: PLC0415  # see above

            logger = logging.getLogger("trainwarden")
            logger.warning("the copy of the run record in %s failed", self.folder, exc_info=True)
            return None

    def _replace(self, name: str, content: bytes, *, durable: bool = False) -> None:
        path = self.path(name)
        try:
            replace_file(path, content, durable=durable)
        except FileNotFoundError:
            # The folder was removed under the run.
            os.makedirs(os.path.dirname(path), exist_ok=True)
            replace_file(path, content, durable=durable)

    def _link_first(self, temporary: str, name: str, sentinel: Sentinel, *, superseded: bool) -> bool:
        # A link never replaces, so of two ranks that fail together exactly one gets through.
        path = self.path(name)
        for _ in range(3):
            try:
                os.link(temporary, path)
                return True
            except FileExistsError:  # noqa: PERF203  # three rounds at most
                existing = read_sentinel(path)
                if superseded:
                    return False
                if isinstance(existing, Sentinel) and existing.attempt_key == sentinel.attempt_key:
                    if existing.failure != UNKNOWN_END or sentinel.failure == UNKNOWN_END:
                        return False
                    break
                self._move_older_away(path, existing)
            except OSError:
                break
        # An end of unknown cause, a file system without links, or other writers in between each time: the evidence
        # matters more than the order.
        os.replace(temporary, path)
        return True

    def _move_older_away(self, path: str, existing: Sentinel | Unreadable | None) -> None:
        number = existing.attempt if isinstance(existing, Sentinel) else None
        if number is None and isinstance(existing, Sentinel):
            number = attempt_number(read_metadata(self.folder), existing.attempt_key)
        try:
            os.replace(path, f"{path}.{number or 0}")
        except FileNotFoundError:
            pass


def _encode(values: Mapping[str, Any]) -> bytes:
    try:
        return encode(values)
    except ValueError:
        # Another tool wrote NaN into the file, which is no JSON.
        return encode(json.loads(json.dumps(values), parse_constant=lambda _text: None))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
