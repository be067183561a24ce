"""What a run shows of itself before it is ended: the stacks of its ranks, and what the scheduler has of its job.

Kept as files in `captures/<incident>/` of the state folder. It takes a bounded time, in a thread of its own: a file
system that does not answer delays no decision beyond it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainwarden.beneath import open_beneath
from trainwarden.record.capture import (
    LIMITS,
    STACKS,
    StacksHeader,
    answer_path,
    parse_stacks,
    write_request,
)
from trainwarden.record.document import read_open
from trainwarden.record.rank import RankBeat, read_ranks
from trainwarden_remediator.act.resume_point import NOT_LOOKED_FOR, ResumePoint, resume_point
from trainwarden_remediator.act.stacks import Comparison, Place, compare, place_of
from trainwarden_remediator.drivers.driver import JobState, Reading, ScheduledJob
from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

FOLDER = "captures"
TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.25
# Before the end of the time, for what comes after the checkpoints.
_MARGIN_SECONDS = 0.5
# Of the whole time: for the first answer, and for the other ranks after the first.
_FIRST_SHARE, _OTHERS_SHARE = 0.7, 0.35
_MAX_RANKS = 4096
# What was read so long ago is read again before an attempt is ended.
_MOMENT_SECONDS = 1.0
# Timer of an incident; its detail is how many processes have begun.
_TIMER = "captures"
_MAX_BEGINS = 3
_MAX_THREADS = 16
# Of one capture, of which stacks alone may have the last part; of all captures; and their number.
_CAPTURE_BYTES, _RESERVED_BYTES, _KEPT_BYTES, _KEPT = 64 << 20, 16 << 20, 1 << 30, 100


@dataclass(frozen=True)
class Captured:
    """What was found; `folder` holds the files, empty where there are none."""

    text: str
    suspect: str = ""
    folder: str = ""
    checkpoint: ResumePoint = NOT_LOOKED_FOR

    def __str__(self) -> str:
        suspect = self.suspect and f"suspect: {self.suspect}"
        return "; ".join(filter(None, (f"captured: {self.text}", suspect, self.folder, self.checkpoint.text)))


class Captures(Protocol):
    """Captures what a run shows before it is ended."""

    timeout: float

    def result(self, incident: Incident, *, running: bool) -> Captured | None:
        """Begin, or go on; return what was found once it is over. `running`: the job has not ended."""

    def forget(self, incident_id: str) -> None:
        """Discard what is held in memory of an incident."""


class Capturing:
    """The state CAPTURING of incidents: begins a capture, and ends it in time, whatever becomes of it."""

    def __init__(self, captures: Captures, timers: Timers) -> None:
        self._captures = captures
        self._timers = timers
        self._begun: set[str] = set()

    def step(self, incident: Incident, job: Reading) -> Captured | None:
        """Return what was found; None while the capture is under way."""
        begins = int(self._timers.detail(incident.id, _TIMER) or 0)
        if incident.id not in self._begun:
            # A process that dies again and again must not begin anew for ever.
            begins += 1
            self._begun.add(incident.id)
            self._timers.wait(incident.id, _TIMER, str(begins))
            self._timers.keep()
        passed = self._timers.elapsed(incident.id, _TIMER) or 0.0
        running = isinstance(job, ScheduledJob) and job.state is JobState.RUNNING
        found = self._captures.result(incident, running=running) if begins <= _MAX_BEGINS else Captured("")
        if found is None and passed < self._captures.timeout:
            return None
        self._begun.discard(incident.id)
        self._timers.forget(incident.id, _TIMER)
        self._captures.forget(incident.id)
        return found or Captured(f"nothing was captured in {self._captures.timeout:g} s")


@dataclass
class _Work:
    thread: threading.Thread | None = None
    found: Captured | None = None
    answered: dict[int, tuple[StacksHeader, Place | None]] = field(default_factory=dict)


class Capturer:
    """Captures into the state folder.

    Args:
        state_dir: of the remediator.
        runs_dir: the run records; None where they cannot be seen.
        describe: returns what a scheduler has of a job, by the scheduler's name.
        timeout: seconds for one capture.
        trust: returns, for the name of a policy, what it takes for a complete checkpoint.
        done: called in the thread of a capture when it is over.
    """

    def __init__(
        self,
        state_dir: Path,
        runs_dir: Path | None,
        describe: Mapping[str, Callable[[str], bytes]],
        timeout: float = TIMEOUT_SECONDS,
        trust: Callable[[str], str | None] = lambda _policy: None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._done = done
        self._trust = trust
        self.timeout = timeout
        self._captures = state_dir / FOLDER
        self._runs_dir = runs_dir
        self._describe = describe
        self._works: dict[str, _Work] = {}
        # By incident; for any thread.
        self._describing: dict[str, threading.Thread] = {}

    def result(self, incident: Incident, *, running: bool) -> Captured | None:
        """Begin, or go on; return what was found once it is over. `running`: the job has not ended."""
        work = self._works.get(incident.id)
        if work is None:
            busy = sum(each.thread is not None and each.thread.is_alive() for each in self._works.values())
            if busy >= _MAX_THREADS:
                return Captured(f"nothing was captured: {busy} captures are under way")
            work = self._works[incident.id] = _Work()
            name = f"capture-{incident.id[:8]}"
            work.thread = threading.Thread(target=self._run, args=(incident, running, work), name=name, daemon=True)
            work.thread.start()
        return work.found

    def forget(self, incident_id: str) -> None:
        """Discard what is held in memory of an incident."""
        work = self._works.get(incident_id)
        if work is not None and (work.thread is None or not work.thread.is_alive()):
            del self._works[incident_id]

    def _run(self, incident: Incident, running: bool, work: _Work) -> None:  # of a thread
        try:
            work.found = self._capture(incident, running=running)
        except Exception as error:  # a capture never stands in the way of a restart
            log.warning("incident %s: nothing could be captured", incident.id, exc_info=error)
            work.found = Captured(f"nothing could be captured: {error}")
        self._done()

    def described(self, incident_id: str) -> bool:
        """Wait until what the scheduler has of a job is kept; return whether that took more than a moment."""
        thread = self._describing.pop(incident_id, None)
        if thread is None:
            return False
        begin = time.monotonic()
        thread.join(self.timeout)
        return time.monotonic() - begin > _MOMENT_SECONDS

    def _begin_description(self, incident: Incident, kept: _Kept) -> bool:
        """Ask the scheduler beside the ranks: its answer is awaited right before the attempt is ended."""
        describe, job_id = self._describe.get(incident.scheduler or ""), incident.job_id
        if describe is None or not job_id:
            return False

        def write() -> None:
            try:
                kept.write("job.txt", describe(job_id))
            except OSError as error:
                log.warning("incident %s: what the scheduler has of its job could not be kept: %s", incident.id, error)

        for over in [each for each, thread in self._describing.copy().items() if not thread.is_alive()]:
            self._describing.pop(over, None)
        thread = threading.Thread(target=write, name=f"describe-{incident.id[:8]}", daemon=True)
        thread.start()
        self._describing[incident.id] = thread
        return True

    def _capture(self, incident: Incident, *, running: bool) -> Captured:
        begin = time.monotonic()
        kept = _Kept(self._captures / incident.id)
        described = self._begin_description(incident, kept)
        comparison = None
        if running and self._runs_dir is not None and incident.attempt_key:
            comparison = _of_ranks(self._runs_dir / incident.run_id, incident, kept, begin, self.timeout)
        text = comparison.text if comparison else ""
        suspect = comparison.suspect if comparison else ""
        if text:
            kept.write(
                "summary.txt", f"{text}\n{f'suspect: {suspect}' if suspect else 'no rank stands out'}\n".encode()
            )
        prune(self._captures)
        where = str(kept.folder) if kept.names or described else ""
        nothing = "no rank's stacks" if running else "no rank's stacks: the job has ended"
        return Captured(text or nothing, suspect, where, self._checkpoint(incident, begin))

    def _checkpoint(self, incident: Incident, begin: float) -> ResumePoint:
        left = self.timeout - (time.monotonic() - begin) - _MARGIN_SECONDS
        record = self._runs_dir / incident.run_id if self._runs_dir is not None else None
        if record is None or not record.is_dir() or left <= 0 or not incident.attempt_key:
            return NOT_LOOKED_FOR
        return resume_point(record, incident.attempt_key, self._trust(incident.policy), left)


class _Kept:
    """The folder of one capture, with a limit on its size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self._left = _CAPTURE_BYTES
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, if it is not empty and there is room."""
        reserved = 0 if name.endswith(f".{STACKS}") else _RESERVED_BYTES
        if not content or len(content) > self._left - reserved:
            return
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor has no path
            file.write(content)
        self.names.add(name)
        self._left -= len(content)


def _of_ranks(record: Path, incident: Incident, kept: _Kept, begin: float, timeout: float) -> Comparison | None:
    """Request the stacks of all ranks, keep what they leave, and compare."""
    key = incident.attempt_key or ""
    beats = [
        beat
        for beat in read_ranks(record, limit=_MAX_RANKS)
        if isinstance(beat, RankBeat) and beat.attempt_key == key and beat.status in (None, "running")
    ]
    hosts = {beat.rank: beat.host for beat in beats if beat.host}
    expected = {beat.rank for beat in beats}
    if not expected:
        return None
    try:
        write_request(record, key, incident.id)
        folder = os.open(record, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        log.warning("run %s: its ranks cannot be asked for their stacks: %s", incident.run_id, error)
        return None
    try:
        answers = _Answers(folder, os.fstat(folder).st_uid, incident, kept)
        first: float | None = None
        while (passed := time.monotonic() - begin) < timeout:
            answers.read(expected)
            if first is None and answers.stacks:
                first = passed
            waited = passed - first if first is not None else None
            is_late = passed >= timeout * _FIRST_SHARE if waited is None else waited >= timeout * _OTHERS_SHARE
            if (answers.stacks.keys() >= expected or is_late) and (not answers.following or waited is None):
                break
            time.sleep(_POLL_SECONDS)
        answers.read(expected)
    finally:
        os.close(folder)
    return compare(answers.stacks, expected - answers.stacks.keys(), hosts)


class _Answers:
    """What the ranks of an attempt have left so far. Only files of the record's owner, and of root, count."""

    def __init__(self, folder: int, owner: int, incident: Incident, kept: _Kept) -> None:
        self.stacks: dict[int, tuple[StacksHeader, Place | None]] = {}
        self.following: set[tuple[int, str]] = set()
        self._folder = folder
        self._owner = owner
        self._incident = incident
        self._kept = kept

    def read(self, ranks: set[int]) -> None:
        """Read what is new."""
        for rank in sorted(ranks - self.stacks.keys()):
            data = self._content(rank, STACKS)
            found = parse_stacks(data) if data else None
            if found is None or data is None:
                continue
            header, text = found
            if (header.rank, header.intent, header.attempt_key) != (
                rank,
                self._incident.id,
                self._incident.attempt_key,
            ):
                continue
            self.stacks[rank] = header, place_of(header, text)
            self.following |= {(rank, kind) for kind in header.follow}
            self._kept.write(f"{rank}.{STACKS}", data)
        for rank, kind in sorted(self.following):
            data = self._content(rank, kind)
            if data is not None:
                self.following.discard((rank, kind))
                self._kept.write(f"{rank}.{kind}", data)

    def _content(self, rank: int, kind: str) -> bytes | None:
        name = f"ranks/{answer_path('', rank, kind).name}"
        try:
            descriptor = open_beneath(self._folder, name)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (self._owner, 0):
                return None
            return read_open(descriptor, status.st_size, LIMITS[kind])
        except OSError:
            return None
        finally:
            os.close(descriptor)


def prune(captures: Path, kept: int = _KEPT, kept_bytes: int = _KEPT_BYTES) -> None:
    """Delete the oldest captures beyond a number and a size."""
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        found = sorted(((path.stat().st_mtime, path) for path in captures.iterdir()), reverse=True)
    total = 0
    for number, (_, path) in enumerate(found):
        with contextlib.suppress(OSError):
            total += sum(each.stat().st_size for each in path.iterdir())
        if number >= kept or total > kept_bytes:
            shutil.rmtree(path, ignore_errors=True)
