"""The records of runs, as the remediator sees them in a folder. A file system that does not answer delays no round."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from trainwarden.deadline import DeadlineExceeded, call_with_deadline
from trainwarden.jobs.checkpoints import resume_variables
from trainwarden.record.folder import METADATA
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.resume import read_choice
from trainwarden.record.sentinels import Sentinel, current_completion
from trainwarden.record.store import RecordStore
from trainwarden.record.superseded import living_rival
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.observe.evidence import ReportedRun

T = TypeVar("T")

# A record that was not written for longer is of a process that is gone or stopped.
_LIVE_SECONDS = 30.0
_TIMEOUT_SECONDS = 2.0
# Folders that do not answer; each costs a thread that cannot be ended. Where more are blocked, none is asked.
_MAX_BLOCKED = 128
# A folder is waited for the less long the more of them are blocked, down to this part of the time.
_LEAST_PART = 20


class Records:
    """The run records below `runs_dir`, for any thread; None where the remediator cannot see them: nothing is there.

    A record that gives no answer within `timeout` seconds is unknown, and is not tried again before it has answered.
    """

    def __init__(self, runs_dir: Path | None, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._runs_dir = runs_dir
        self._timeout = timeout
        self._lock = threading.Lock()
        # The calls that have not ended in time, by the run that each is about.
        self._blocked: list[tuple[str, threading.Event]] = []

    def _ask(self, run_id: str, ask: Callable[[Path], T], nothing: T) -> T | Unknown:
        """Return what `ask` returns for the folder of a run; `nothing` where records cannot be seen."""
        if self._runs_dir is None:
            return nothing
        folder, ended = self._runs_dir / run_id, threading.Event()
        no_answer = Unknown(f"the folder of its record does not answer: {clean(folder)}")
        with self._lock:
            self._blocked = [each for each in self._blocked if not each[1].is_set()]
            blocked = [each for each, _ in self._blocked]
        if run_id in blocked or len(blocked) >= _MAX_BLOCKED:
            return no_answer

        def work() -> T:
            try:
                return ask(folder)
            finally:
                ended.set()

        # Many may block at once, as those of one file system: together they must not hold the loop up.
        timeout = self._timeout / min(1 + len(blocked), _LEAST_PART)
        try:
            return call_with_deadline(work, timeout, thread_name="record")
        except DeadlineExceeded:
            with self._lock:
                self._blocked.append((run_id, ended))
            return no_answer

    def complete(self, run: ReportedRun) -> bool | Unknown:
        """Return whether the run's current attempt left a `_complete`. Unreadable is not complete."""

        def ask(folder: Path) -> bool:
            return isinstance(current_completion(folder, run.attempt_key, run.started), Sentinel)

        return self._ask(run.run_id, ask, nothing=False)

    def owner(self, run_id: str) -> int | Unknown | None:
        """Return the uid that writes the record; None where that is not seen.

        Of a record that root or this process's own user writes for a job that writes none, the uid that it names:
        nobody else may write on behalf of another user.
        """
        return self._ask(run_id, _owner, None)

    def resume_variables(self, run_id: str, path: str, step: float | None) -> dict[str, str] | Unknown:
        """Return the variables with which a job that writes no record begins from a checkpoint, by its rule."""

        def ask(folder: Path) -> dict[str, str]:
            written = _on_behalf(folder)
            if written is None:
                return {}
            return resume_variables(written.resume, path, None if step is None else int(step)) or {}

        return self._ask(run_id, ask, {})

    def rival(self, run_id: str, now: float) -> str | Unknown | None:
        """Return what lives beside the run's present attempt: an older one of the same run; None if nothing does."""

        def ask(folder: Path) -> str | None:
            found = living_rival(folder, now)
            if found is None:
                return None
            step = "" if found.step is None else f" at step {found.step}"
            return f"attempt {found.attempt} still runs on {clean(found.host or '?', 80)} (pid {found.pid}){step}"

        return self._ask(run_id, ask, None)

    def saving(self, run_id: str, attempt_key: str, now: float) -> float | Unknown | None:
        """Return for how many seconds a live attempt has been saving a checkpoint; None where it does not."""

        def ask(folder: Path) -> float | None:
            metadata = read_metadata(folder)
            if not isinstance(metadata, Metadata) or metadata.attempt_key != attempt_key:
                return None
            if (metadata.status, metadata.phase) != ("running", "checkpoint") or metadata.phase_time is None:
                return None
            is_live = now - (metadata.last_update or 0.0) <= _LIVE_SECONDS
            return max(0.0, now - metadata.phase_time) if is_live else None

        return self._ask(run_id, ask, None)

    def figures(self, run_id: str, attempt_key: str) -> dict[str, int | str | None]:
        """Return the fields of `Figures` that the record of an attempt holds; none where it gives no answer."""

        def ask(folder: Path) -> dict[str, int | str | None]:
            return _figures(folder, attempt_key)

        nothing: dict[str, int | str | None] = {}
        found = self._ask(run_id, ask, nothing)
        return nothing if isinstance(found, Unknown) else found

    def announce_restart(
        self, run_id: str, attempt_key: str, reason: str, intent: str, checkpoint_trust: str | None = None
    ) -> str | None:
        """Write `_restart`, from which the attempt learns why it ends; return the error, which stops nothing.

        It may still be written after that: it names the attempt and the incident.
        """

        def ask(folder: Path) -> str | None:
            try:
                if folder.is_dir():
                    RecordStore(folder).announce_restart(attempt_key, reason, intent, checkpoint_trust)
            except OSError as error:
                return f"the restart could not be announced in the record: {error.strerror}"
            return None

        found = self._ask(run_id, ask, None)
        return f"the restart was not announced: {found.reason}" if isinstance(found, Unknown) else found


def _owner(folder: Path) -> int | None:
    for path in (folder / METADATA, folder):
        with suppress(OSError):
            writer = path.stat(follow_symlinks=False).st_uid
            written = _on_behalf(folder)
            return writer if written is None or written.user_id is None else written.user_id
    return None


def _on_behalf(folder: Path) -> Metadata | None:
    """Return the record of a run that root or this process's own user writes for its job; None for any other."""
    with suppress(OSError):
        if (folder / METADATA).stat(follow_symlinks=False).st_uid in (0, os.geteuid()):
            metadata = read_metadata(folder)
            return metadata if isinstance(metadata, Metadata) and metadata.user_id is not None else None
    return None


def _figures(folder: Path, attempt_key: str) -> dict[str, int | str | None]:
    metadata, choice = read_metadata(folder), read_choice(folder)
    found: dict[str, int | str | None] = {}
    if isinstance(metadata, Metadata) and metadata.attempt_key == attempt_key:
        found["world_size"] = metadata.world_size
        found["first_step"] = next((one.resume_step for one in metadata.attempts if one.key == attempt_key), None)
    if choice is not None and choice.attempt_key == attempt_key:
        found |= {"resumed_step": choice.step, "resumed_path": choice.path or ""}
    return found
