"""The run record of one job that writes none: begun, kept up to date and ended from what is seen of the job."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwarden.exec.log_file import put_aside
from trainwarden.exec.printed_progress import PrintedProgress
from trainwarden.exec.record_writer import ExternalRecordWriter
from trainwarden.identity import AttemptKey, InvalidAttemptKey
from trainwarden.jobs.checkpoints import CheckpointFolder, hand_over, newest_complete
from trainwarden.jobs.job_log import MAX_LAG, JobLog
from trainwarden.record.folder import EVENTS, LOG, replace_file
from trainwarden.record.locks import NamedLocks
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import DEFAULT_STALL_SECONDS, Thresholds
from trainwarden.training.outcome import AttemptOutcome

# How often it is written that a job lives. That of a thousand jobs takes a tenth of a core.
ALIVE_SECONDS = 20.0
# How often its checkpoints are looked for: each time a listing of their folder, and short reads of the newest.
SEARCH_SECONDS = 60.0
# The logs, and how far each was read, for the next process that follows them.
POSITIONS = ".positions"
_NO_PROCESS = 0
_LAST_READ_SECONDS = 60.0
_LAST_READ_BYTES = 2 * MAX_LAG


class NotOurs(Exception):
    """The record of the run is another's, who writes it; the message says whose."""


class BeingWritten(NotOurs):
    """Another process of this user writes the record; once that has ended this one may."""


@dataclass(frozen=True)
class WatchedJob:
    """One start of a job, as its record describes it.

    Attributes:
        run_id: the run that it is an attempt of.
        key: of the attempt.
        user_id: uid of the job's user, whose logs alone are read.
        logs: paths of its output.
        started: Unix seconds; None where that is not known.
        settings: more fields of the metadata.
        inactivity: seconds that its log, or its steps, may stand still; None for the default of steps alone.
        restart_stalls: that may be restarted; else it is inferred, and only alerts.
        log_roots: folders outside of which no log is read.
        checkpoints: where its checkpoints are; None where they are not looked for.
        not_printed: lines with this text are the scheduler's, and hold no steps; empty for none.
        shown_by_log: nothing but its log shows that it runs: it is pending until there is one.
    """

    run_id: str
    key: AttemptKey
    user_id: int
    logs: Sequence[str] = ()
    started: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    inactivity: float | None = None
    restart_stalls: bool = False
    log_roots: Sequence[str] = ("/",)
    checkpoints: CheckpointFolder | None = None
    not_printed: bytes = b""
    shown_by_log: bool = False


class JobRecord:
    """Writes one attempt of a run for its job. No method but `open` raises.

    Args:
        runs: the folder of the run records.
        job: whose record it is.
    """

    def __init__(self, runs: Path, job: WatchedJob) -> None:
        self.job = job
        self.folder = runs / job.run_id
        self._locks = _locks(runs)
        self._store = RecordStore(self.folder)
        self._printed = PrintedProgress()
        self.log = JobLog(job.logs, job.user_id, self.folder / LOG, self._add, job.log_roots)
        budget = {} if job.inactivity is None else dict.fromkeys(("init", "load", "train"), job.inactivity)
        self._writer = ExternalRecordWriter(
            self._store,
            job.key,
            Thresholds(stall_seconds=MappingProxyType({**DEFAULT_STALL_SECONDS, **budget})),
            pid=_NO_PROCESS,
            printed=self._printed,
            given=budget if job.restart_stalls else {},
            settings={
                **job.settings,
                "user_id": job.user_id,
                **({} if job.checkpoints is None else _resumes(job.checkpoints)),
            },
            silence=job.inactivity is not None,
        )
        self._alive = 0.0
        self._searched: float | None = None
        self._ended = False

    @property
    def silent_for(self) -> float:
        """For how many seconds nothing was printed; 0 before the first output."""
        last = self._printed.last_output
        return 0.0 if last is None else max(0.0, time.time() - last)

    @property
    def is_at_last_step(self) -> bool:
        """Whether the last step of the training was printed."""
        return self._printed.first_step is not None and self._printed.is_at_end

    def open(self) -> bool:
        """Begin the attempt, or go on with it where another process has left it; False where it has ended.

        Raises:
            NotOurs: another process or user writes the record.
            OSError: it cannot be written.
        """
        if not self._locks.take(self.job.run_id):
            raise BeingWritten(
                f"run {self.job.run_id}: another process of this user writes its record, such as a watch or an adopt"
            )
        has_begun = False
        try:
            has_begun = self._begin()
        finally:
            if not has_begun:
                self._locks.release(self.job.run_id)
        return has_begun

    def _begin(self) -> bool:
        metadata = read_metadata(self.folder)
        with contextlib.suppress(FileNotFoundError):
            owner = self.folder.stat(follow_symlinks=False).st_uid
            if owner != os.geteuid():
                raise NotOurs(f"run {self.job.run_id}: its record is that of uid {owner}, who writes it")
        if isinstance(metadata, Metadata):
            self._check(metadata)
            if metadata.attempt_key == str(self.job.key) and not metadata.is_live:
                return False
            if _is_older(self.job.key, metadata):
                return False
        if self._writer.go_on():
            self.log.go_on(_positions(self.folder))
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / LOG).parent.mkdir(exist_ok=True)
        put_aside(self.folder / LOG, self.job.key.generation)
        if _positions(self.folder).get("job") == self.job.key.job_id:
            # Its output goes on in the same files.
            self.log.go_on(_positions(self.folder))
        self._writer.announce(self.job.started)
        self._writer.alive(self._status)
        self._alive = time.monotonic()
        with contextlib.suppress(OSError):
            # Of this user, so that others may append to it.
            (self.folder / EVENTS).touch()
        self._keep_positions()
        return True

    @property
    def _status(self) -> str:
        return "pending" if self.job.shown_by_log and not self.log.was_seen else "running"

    def look(self, *, lives: bool = True) -> None:
        """Read the log, and write what follows from it.

        Args:
            lives: the job is known to live; else only its steps are written.
        """
        before = self._status
        found = self.log.read()
        changed = self._writer.read_output() or self._status != before
        now = time.monotonic()
        if lives and (changed or now - self._alive >= ALIVE_SECONDS):
            self._alive = now
            self._writer.alive(self._status)
        if found:
            self._keep_positions()
        if self._searched is None or now - self._searched >= SEARCH_SECONDS:
            self._look_for_checkpoints()

    def _look_for_checkpoints(self) -> None:
        """Record the newest complete checkpoint, and hand it over to the next start of the job."""
        self._searched, folder = time.monotonic(), self.job.checkpoints
        newest = None if folder is None else newest_complete(folder, self.job.user_id)
        if folder is None or newest is None or not self._writer.checkpoint(newest):
            return
        with contextlib.suppress(OSError):
            problem = hand_over(self.folder, folder, newest)
            if problem is not None:
                self.log.problems[folder.path] = problem

    def _add(self, lines: bytes) -> None:
        mark = self.job.not_printed
        if mark and mark in lines:
            lines = b"".join(line for line in lines.splitlines(keepends=True) if mark not in line)
        self._printed.add(lines)

    def end(self, outcome: AttemptOutcome) -> None:
        """Write how the attempt ended, once its log was read to its end."""
        if self._ended:
            return
        self._ended = True
        self._writer.read_output()
        self._look_for_checkpoints()
        self._writer.end(outcome)
        self._keep_positions()
        self.close()

    def read_to_end(self) -> None:
        """Read what is left of the log of a job that has ended; not without end where a process still writes to it."""
        deadline, left = time.monotonic() + _LAST_READ_SECONDS, _LAST_READ_BYTES
        while left > 0 and time.monotonic() < deadline and (count := self.log.read(over=True)):
            left -= count
            self._writer.read_output()

    def close(self) -> None:
        """Close all files; another process may go on."""
        self._keep_positions()
        self.log.close()
        self._locks.release(self.job.run_id)

    def _check(self, metadata: Metadata) -> None:
        if metadata.user_id is None:
            where = f"{metadata.host or '?'}, pid {metadata.pid or '?'}"
            raise NotOurs(f"run {self.job.run_id}: a training writes its record itself ({where})")
        if metadata.user_id != self.job.user_id:
            raise NotOurs(
                f"run {self.job.run_id}: it is a run of uid {metadata.user_id}, and the job belongs to uid "
                f"{self.job.user_id}"
            )

    def _keep_positions(self) -> None:
        kept = {**self.log.positions(), "job": self.job.key.job_id, "paths": self.log.paths}
        with contextlib.suppress(OSError):
            replace_file(self.folder / POSITIONS, json.dumps(kept).encode())


@cache
def _locks(runs: Path) -> NamedLocks:
    """Return the locks on the records that this user's processes write for jobs, by run."""
    return NamedLocks(runs / f".writers-{os.geteuid()}")


def alone(job: WatchedJob) -> WatchedJob:
    """Return the job as a run of its own, beside another of its name or mark."""
    return replace(job, run_id=f"{job.run_id[:110]}-{job.key.job_id.replace('+', '-')}"[:128])


def is_ours(runs: Path, job: WatchedJob) -> bool:
    """Return whether the run has a record that is written on behalf of its jobs."""
    metadata = read_metadata(runs / job.run_id)
    return isinstance(metadata, Metadata) and metadata.user_id is not None


def is_open(runs: Path, job: WatchedJob) -> bool:
    """Return whether the record of the run is about this start of the job, written on its behalf, and has no end."""
    metadata = read_metadata(runs / job.run_id)
    if not isinstance(metadata, Metadata) or metadata.attempt_key != str(job.key):
        return False
    return metadata.is_live and metadata.user_id is not None


def recorded_end(runs: Path, job: WatchedJob) -> str | None:
    """Return the status that this start of the job has ended with by the record of the run; None without one."""
    metadata = read_metadata(runs / job.run_id)
    if not isinstance(metadata, Metadata) or metadata.attempt_key != str(job.key):
        return None
    return None if metadata.is_live else metadata.status


def open_jobs(runs: Path, scheduler: str) -> Iterator[WatchedJob]:
    """Yield the jobs of a scheduler whose records this user writes on their behalf, and that have no end."""
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        metadata = read_metadata(folder)
        if not isinstance(metadata, Metadata) or not metadata.is_live or metadata.user_id is None:
            continue
        with contextlib.suppress(InvalidAttemptKey, OSError):
            key = AttemptKey.parse(metadata.attempt_key or "")
            if key.scheduler == scheduler and folder.stat(follow_symlinks=False).st_uid == os.geteuid():
                yield WatchedJob(folder.name, key, metadata.user_id, followed(folder))


def is_another_live_job(runs: Path, job: WatchedJob) -> bool:
    """Return whether the record of the run is about a live attempt of another job."""
    metadata = read_metadata(runs / job.run_id)
    is_live = isinstance(metadata, Metadata) and metadata.is_live and metadata.attempt_key is not None
    return is_live and not is_of_job(runs, job)


def is_of_job(runs: Path, job: WatchedJob) -> bool:
    """Return whether the record of the run is about a start of the same job."""
    stated = recorded_key(runs, job)
    return stated is not None and stated.same_job(job.key)


def recorded_key(runs: Path, job: WatchedJob) -> AttemptKey | None:
    """Return the attempt that the record of the run is about; None without one."""
    metadata = read_metadata(runs / job.run_id)
    with contextlib.suppress(InvalidAttemptKey):
        return AttemptKey.parse((metadata.attempt_key if isinstance(metadata, Metadata) else None) or "")
    return None


def recorded_start(runs: Path, job: WatchedJob) -> float | None:
    """Return when this start of the job began, by the record of the run, Unix seconds; None if it does not say."""
    metadata = read_metadata(runs / job.run_id)
    if not isinstance(metadata, Metadata) or metadata.attempt_key != str(job.key):
        return None
    return metadata.attempt_start_time


def _resumes(folder: CheckpointFolder) -> dict[str, Any]:
    """Return the fields of the metadata by which the next start resumes."""
    return {"checkpoint_trust": folder.trust, **({"resume": folder.templates} if folder.templates else {})}


def _positions(folder: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((folder / POSITIONS).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def followed(folder: Path) -> tuple[str, ...]:
    """Return the paths of a job's output, as the process before has followed them."""
    paths = _positions(folder).get("paths")
    return tuple(str(path) for path in paths) if isinstance(paths, list) else ()


def _is_older(key: AttemptKey, metadata: Metadata) -> bool:
    """Return whether the record is about a later start of the same job already."""
    with contextlib.suppress(InvalidAttemptKey):
        stated = AttemptKey.parse(metadata.attempt_key or "")
        return stated.same_job(key) and stated.generation > key.generation
    return False
