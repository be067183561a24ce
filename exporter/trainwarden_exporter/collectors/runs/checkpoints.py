"""Verify the last checkpoint of each run, once, in a thread of its own, with no more rights than the record's user."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.beneath import open_inside
from trainwarden.capabilities import may_become_others
from trainwarden.redaction import plain
from trainwarden_exporter.core.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden.checkpoint.verdict import CheckpointVerdict
    from trainwarden.record.progress import Checkpoint
    from trainwarden_exporter.collectors.runs.record import RunRecord

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
# A walk over a file system that never answers leaves a thread behind: so many of one user, and of all. What is not
# verified for that is tried again after so many seconds.
MAX_HUNG, MAX_HUNG_OF_ALL = 4, 16
RETRY_SECONDS = 60.0
# A user who names one large folder after the other takes a twentieth of a core with it.
PAUSE_FACTOR = 20.0
_WALK_THREAD = "trainwarden-checkpoint"
_MAX_LINE = 1000
_CHILD = "trainwarden_exporter.collectors.runs.checkpoint_child"
# What Python needs to start; no secret of the exporter's is any of it.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL")


class CheckpointAccess:
    """Looks at checkpoints with the rights of the user who wrote the record.

    A path in a record may be any: it must not show its writer what is where only the exporter may look. A checkpoint of
    the exporter's own user is looked at wherever it is. Root looks at another user's in a process that becomes this
    user, where it may. Any other user looks only below `roots`, and only at what belongs to the user.

    Args:
        roots: folders of checkpoints.
    """

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        self._roots = tuple(os.path.realpath(root) for root in roots)

    def verify(self, checkpoint: Checkpoint, owner: int | None) -> CheckpointVerdict | None:
        """Verify a checkpoint by its listing and the ends of its files; return None if this node does not see it.

        Args:
            checkpoint: with an absolute path.
            owner: uid of the record's user; None where that is not known, as in S3.

        Raises:
            OSError: it cannot be looked at.
        """
        user = os.geteuid()
        if owner is not None and owner != user and user == 0 and may_become_others():
            return _verify_as(checkpoint, owner)
        if owner != user and not self._belongs(checkpoint.path, owner):
            return None
        return look(checkpoint.path, checkpoint.size_bytes)

    def _belongs(self, path: str, owner: int | None) -> bool:
        """Return whether a path is below the roots, without a link in it, and the user's."""
        place = os.path.normpath(path)
        for root in self._roots:
            with contextlib.suppress(OSError, ValueError):
                if os.path.commonpath((place, root)) != root or place == root:
                    continue
                found = open_inside(root, place, os.O_PATH)
                try:
                    status = os.fstat(found)
                    return not stat.S_ISLNK(status.st_mode) and owner in (None, status.st_uid)
                finally:
                    os.close(found)
        return False


def look(path: str, size: int | None) -> CheckpointVerdict | None:
    """Verify a checkpoint with the rights of this process; return None if this node does not see its place."""
    if not Path(path).parent.is_dir():
        return None
    from trainwarden.checkpoint.verify import verify  # noqa: PLC0415  # large; for nodes that see checkpoints

    return verify(path, size, seconds=TIMEOUT_SECONDS)


def _verify_as(checkpoint: Checkpoint, owner: int) -> CheckpointVerdict | None:
    """Verify a checkpoint in a process with the rights of another user, which takes root."""
    from trainwarden.checkpoint.verdict import CheckpointVerdict  # noqa: PLC0415  # see above
    from trainwarden.clients.process import CannotStart, ProcessTimeout, TooMuchOutput, run  # noqa: PLC0415

    question = {"path": os.fsencode(checkpoint.path).hex(), "size": checkpoint.size_bytes}
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        done = run(
            [sys.executable, "-m", _CHILD, str(owner)],
            2 * TIMEOUT_SECONDS,
            stdin=json.dumps(question).encode(),
            environment=environment,
        )
    except (CannotStart, ProcessTimeout, TooMuchOutput) as error:
        raise OSError(f"as user {owner}: {error}") from error
    if done.status:
        raise OSError(f"as user {owner}: {done.message}")
    answer = json.loads(done.output)
    return answer and CheckpointVerdict(answer["answer"], tuple(answer["evidence"]))


class CheckpointVerifier:
    """Knows whether the last checkpoint of each run is complete.

    Args:
        verify: verifies one checkpoint of a user (uid); may take long, and may raise.
        pause_factor: a user's next one is looked at after so many times as long as the last one took.
    """

    def __init__(
        self,
        verify: Callable[[Checkpoint, int | None], CheckpointVerdict | None] | None = None,
        pause_factor: float = PAUSE_FACTOR,
    ) -> None:
        self._verify = verify or CheckpointAccess().verify
        self._pause_factor = pause_factor
        self._changed = threading.Condition()
        # By owner: of hundreds of runs that save at once the next one is found without a look at all of them.
        self._waiting: dict[int | None, dict[str, Checkpoint]] = {}
        self._not_before: defaultdict[int | None, float] = defaultdict(float)
        self._budget = LineBudget()
        self._wanted: dict[str, Checkpoint] = {}
        self._results: dict[str, tuple[Checkpoint, bool | None]] = {}
        self._thread: threading.Thread | None = None
        # The walks that have not ended, with whose checkpoint each is about.
        self._walks: dict[threading.Thread, int | None] = {}

    @property
    def idle(self) -> bool:
        """No checkpoint waits to be verified."""
        return not any(self._waiting.values())

    def is_complete(self, record: RunRecord, owner: int | None) -> bool | None:
        """Return whether a run can resume from its last checkpoint; None while, or where, that is not known.

        `owner` is the uid of the record's user, None where it is not known.
        """
        checkpoint = record.progress.checkpoint if record.progress else None
        if checkpoint is None or not checkpoint.path.startswith("/"):  # in S3, or relative to an unknown folder
            return None
        if self._wanted.get(record.run_id) != checkpoint:
            self._wanted[record.run_id] = checkpoint
            with self._changed:
                for others in self._waiting.values():
                    others.pop(record.run_id, None)
                self._waiting.setdefault(owner, {})[record.run_id] = checkpoint
                self._changed.notify()
            self._start()
        known = self._results.get(record.run_id)
        return known[1] if known is not None and known[0] == checkpoint else None

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget all other runs."""
        for run_id in self._wanted.keys() - run_ids:
            del self._wanted[run_id]
            self._results.pop(run_id, None)
            with self._changed:
                for waiting in self._waiting.values():
                    waiting.pop(run_id, None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoint-verifier", daemon=True)
            self._thread.start()

    def _next(self) -> tuple[str, Checkpoint, int | None]:
        """Wait for and return the run id, checkpoint and owner to verify next: of the owner whose pause ends first."""
        with self._changed:
            while True:
                owners = [owner for owner, waiting in self._waiting.items() if waiting]
                if not owners:
                    self._changed.wait()
                    continue
                owner = min(owners, key=self._not_before.__getitem__)
                pause = self._not_before[owner] - time.monotonic()
                if pause <= 0:
                    waiting = self._waiting[owner]
                    run_id = next(iter(waiting))
                    return run_id, waiting.pop(run_id), owner
                self._changed.wait(pause)

    def _run(self) -> None:
        while True:
            run_id, checkpoint, owner = self._next()
            self._walks = {thread: whose for thread, whose in self._walks.items() if thread.is_alive()}
            hung = list(self._walks.values())
            if hung.count(owner) >= MAX_HUNG or len(hung) >= MAX_HUNG_OF_ALL:
                self._warn(owner, f"run {run_id}: its checkpoint is not verified: others hang in their file systems")
                self._put_back(run_id, checkpoint, owner)
                continue
            began = time.monotonic()
            self._results[run_id] = (checkpoint, self._result(run_id, checkpoint, owner))
            self._not_before[owner] = began + (1 + self._pause_factor) * (time.monotonic() - began)
            for thread in threading.enumerate():
                if thread.name == _WALK_THREAD:
                    self._walks.setdefault(thread, owner)

    def _put_back(self, run_id: str, checkpoint: Checkpoint, owner: int | None) -> None:
        """Have a checkpoint verified later, unless the run has saved another one since."""
        self._not_before[owner] = time.monotonic() + RETRY_SECONDS
        with self._changed:
            if self._wanted.get(run_id) == checkpoint:
                self._waiting.setdefault(owner, {}).setdefault(run_id, checkpoint)

    def _result(self, run_id: str, checkpoint: Checkpoint, owner: int | None) -> bool | None:
        try:
            verdict = self._verify(checkpoint, owner)
        except OSError as error:
            self._warn(owner, f"run {run_id}: its checkpoint cannot be looked at: {error}")
            return None
        except Exception as error:
            log.debug("run %s", run_id, exc_info=True)
            self._warn(owner, f"run {run_id}: its checkpoint could not be judged: {type(error).__name__}: {error}")
            return None
        if verdict is not None and verdict.answer == "incomplete":
            self._warn(owner, f"run {run_id}: checkpoint {checkpoint.path} is {verdict}")
        return {"complete": True, "incomplete": False}.get(verdict.answer) if verdict else None

    def _warn(self, owner: int | None, text: str) -> None:
        """Log a line about a user's checkpoint, within a budget: a training may name another one in each second."""
        if self._budget.take(owner, time.monotonic()):
            log.warning("%s", plain(text)[:_MAX_LINE])
        elif self._budget.is_first_refusal(owner):
            log.warning("checkpoint_lines_left_out uid=%s: there are too many", owner)
