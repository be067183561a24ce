"""The checkpoint that a restarted run will resume from, looked for before the present attempt is ended."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import shlex
import threading
import time
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from trainwarden.checkpoint import verify
from trainwarden.checkpoint.paths import is_remote
from trainwarden.checkpoint.verdict import TRUSTS, Trust
from trainwarden.record.attempt import last_progress
from trainwarden.record.document import Unreadable
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_checkpointed, read_progress
from trainwarden.record.resume import read_choice
from trainwarden.record.superseded import overwritten
from trainwarden_remediator.incidents.incident import clean

log = logging.getLogger(__name__)

COMPLETE, STOP, UNVERIFIED, UNKNOWN = "complete", "stop", "unverified", "unknown"
_MAX_TEXT = 300
_MAX_KNOWN = 1000
# A run, its attempt, and what its policy takes for a complete checkpoint.
_Asked = tuple[str, str, str | None]


@dataclass(frozen=True)
class ResumePoint:
    """The newest complete checkpoint of a run, or why there is none.

    `verdict` is complete, stop (there are checkpoints, and none of them is proven: a person has to decide), unverified
    (they could not be looked at: the policy decides), or unknown (there is nothing to verify).
    `step` and `path` are of the checkpoint where it is complete.
    """

    verdict: str
    text: str
    step: int | None = None
    path: str | None = None


NOT_LOOKED_FOR = ResumePoint(UNVERIFIED, "")


def resume_point(record: Path, attempt_key: str, trust: str | None, seconds: float) -> ResumePoint:
    """Verify the checkpoints that the record of a run names, newest first, as the run does when it resumes.

    Where the record is another user's, root verifies with that user's rights, in another process.

    Args:
        record: folder of the run.
        attempt_key: of the attempt that is to be ended.
        trust: what the policy takes for a complete checkpoint; what the run itself does if None.
        seconds: for all of it.
    """
    deadline = time.monotonic() + seconds
    progress, own_trust = last_progress(record), _trust_of(record, attempt_key)
    if own_trust is None:
        return ResumePoint(UNKNOWN, "the run chooses its checkpoint itself")
    known = progress.known_checkpoints() if progress else ()
    if progress is None and isinstance(damaged := read_progress(record), Unreadable):
        return ResumePoint(UNVERIFIED, f"which checkpoints it has is unknown: {clean(str(damaged), _MAX_TEXT)}")
    if not known:
        return ResumePoint(UNKNOWN, "no checkpoint is recorded")
    if any(is_remote(each.path) for each in known):
        return ResumePoint(UNVERIFIED, "its checkpoints are in S3: the run verifies them when it resumes")
    owner = record.stat()
    if owner.st_uid != os.geteuid() and os.geteuid() == 0:
        return _as_owner(owner, record, attempt_key, trust, deadline - time.monotonic())
    if owner.st_uid != os.geteuid():
        return ResumePoint(UNVERIFIED, "its checkpoints are another user's: the run verifies them when it resumes")
    wanted: Trust = next((each for each in TRUSTS if each == (trust or own_trust)), TRUSTS[0])
    rejected: list[str] = []
    for checkpoint in known:
        left = deadline - time.monotonic()
        if left <= 0:
            return ResumePoint(UNVERIFIED, f"its checkpoints could not be verified in {seconds:g} s")
        name = f"step {checkpoint.step}, {clean(checkpoint.path, 200)}"
        if rival := overwritten(record, checkpoint):
            rejected.append(f"{name}: overwritten by attempt {rival.attempt}")
            continue
        verdict = verify(checkpoint.path, checkpoint.size_bytes, seconds=left, trust=wanted)
        if verdict.answer == "complete":
            older = f"; left out: {clean('; '.join(rejected), _MAX_TEXT)}" if rejected else ""
            text = f"the newest complete checkpoint is of {name}{older}"
            return ResumePoint(COMPLETE, text, checkpoint.step, checkpoint.path)
        if verdict.answer == "unverifiable" and any("gave up" in line for line in verdict.evidence):
            return ResumePoint(UNVERIFIED, f"its checkpoints could not be verified in {seconds:g} s")
        rejected.append(f"{name}: {verdict}")
    aside = shlex.quote(clean(known[0].path, 200))
    return ResumePoint(
        STOP,
        f"no checkpoint is proven complete: {clean('; '.join(rejected), _MAX_TEXT)}; to move a damaged one out of the "
        f"way: trainwarden checkpoints set-aside {aside}",
    )


class ResumePoints:
    """Whether the checkpoints of runs would let them be restarted, judged before they fail.

    Args:
        runs_dir: the run records; None where they cannot be seen.
        seconds: for one run.
        in_background: answer by what was found before, and look in a thread: a file system that does not answer holds
            nobody up.
    """

    def __init__(self, runs_dir: Path | None, seconds: float = 30.0, *, in_background: bool = False) -> None:
        self._runs_dir = runs_dir
        self._seconds = seconds
        self._in_background = in_background
        self._lock = threading.Lock()  # guards what follows
        self._wanted: dict[_Asked, None] = {}
        self._known: dict[_Asked, tuple[object, str | None]] = {}
        self._thread: threading.Thread | None = None

    def stops(self, run_id: str, attempt_key: str, trust: str | None) -> str | None:
        """Return why a restart would stop for a person; None where it would not, or that is not known yet."""
        if self._runs_dir is None:
            return None
        asked = (run_id, attempt_key, trust)
        if not self._in_background:
            return self._look(asked, None)[1]
        with self._lock:
            self._wanted[asked] = None
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look_at_all, name="resume-points", daemon=True)
                self._thread.start()
            return self._known.get(asked, (None, None))[1]

    def _look_at_all(self) -> None:  # of the thread
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                asked = next(iter(self._wanted))
                before = self._known.get(asked)
            found = self._look(asked, before)
            with self._lock:
                self._wanted.pop(asked, None)
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[asked] = found

    def _look(self, asked: _Asked, before: tuple[object, str | None] | None) -> tuple[object, str | None]:
        """Return the state of the checkpoints and the verdict; that of before where nothing has changed."""
        run_id, attempt_key, trust = asked
        record = (self._runs_dir or Path()) / run_id
        try:
            state = _state_of(record)
            if before is not None and before[0] == state:
                return before
            found = resume_point(record, attempt_key, trust, self._seconds)
        except OSError as error:
            log.info("run %s: its checkpoints cannot be looked at: %s", run_id, error)
            return None, None
        return state, found.text if found.verdict == STOP else None


def _state_of(record: Path) -> object:
    """Return what changes with the checkpoints of a record: their paths, sizes and times."""
    documents = (read_progress(record), read_checkpointed(record))
    known = [each.known_checkpoints() for each in documents if isinstance(each, Progress)]
    found: list[object] = []
    for each in chain.from_iterable(known):
        status = None
        if not is_remote(each.path):
            with contextlib.suppress(OSError):
                status = Path(each.path).stat()
        found.append((each.path, status and (status.st_mtime_ns, status.st_size)))
    return found


def _as_owner(owner: os.stat_result, record: Path, attempt_key: str, trust: str | None, seconds: float) -> ResumePoint:
    """Verify with the rights of the owner of a record, in a forked process: it opens no file that its owner may not."""
    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe(duplex=False)

    def verify_as_owner() -> None:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)
        sender.send_bytes(json.dumps(asdict(resume_point(record, attempt_key, trust, seconds))).encode())

    process = forked.Process(target=verify_as_owner, daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            return ResumePoint(**json.loads(receiver.recv_bytes()))
        return ResumePoint(UNVERIFIED, f"its checkpoints could not be verified in {seconds:g} s")
    except EOFError:
        return ResumePoint(UNVERIFIED, f"its checkpoints could not be verified as uid {owner.st_uid}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _trust_of(record: Path, attempt_key: str) -> str | None:
    """Return what the run takes for a complete checkpoint, empty where it does not say; None where nobody looks.

    A job that writes no record chooses none, and whoever writes it for the job looks for its checkpoints.
    """
    choice, metadata = read_choice(record), read_metadata(record)
    if choice is not None and choice.attempt_key == attempt_key:
        return choice.trust or ""
    return metadata.checkpoint_trust if isinstance(metadata, Metadata) and metadata.user_id is not None else None
