"""The checkpoint that an attempt resumes from: rank 0 chooses it once, the other ranks obey or refuse."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.checkpoint import choose, size_of
from trainwarden.checkpoint.paths import absolute, is_remote
from trainwarden.deadline import Deadline, DeadlineExceeded, call_with_deadline
from trainwarden.identity import host_name, process_start_ticks
from trainwarden.record.attempt import last_progress
from trainwarden.record.document import FileContent
from trainwarden.record.folder import METADATA, RESUME
from trainwarden.record.metadata import Metadata, parse_metadata, read_metadata
from trainwarden.record.ownership import RunRefused
from trainwarden.record.progress import Checkpoint
from trainwarden.record.resume import ResumeChoice, parse_choice, read_choice
from trainwarden.record.store import RecordStore
from trainwarden.record.superseded import overwritten

if TYPE_CHECKING:
    from trainwarden.checkpoint.verdict import Trust
    from trainwarden.training.context import RunContext

# How long a rank waits for rank 0's choice, and for that checkpoint to be visible on its host.
WAIT_SECONDS = 300.0
# How long it waits for rank 0's first file in a folder that no other host may see, and that has no record yet.
LOCAL_WAIT_SECONDS = 30.0
# Waiting ranks read the file often at first, and seldom later: a thousand of them may wait on one server.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_MEASURE_SECONDS = 30.0
_WRITE_SECONDS = 10.0
# How often, and how long, the copy of the record is read for the choice.
FETCH_SECONDS = 5.0
_LOCAL_FILE_SYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay"))

logger = logging.getLogger("trainwarden")


class Resumption:
    """Chooses the checkpoint on rank 0; on another rank waits for that choice, and for the checkpoint to be visible.

    Args:
        context: of the run.
        store: of its record; its copy carries the choice to hosts that do not share the folder.
    """

    def __init__(self, context: RunContext, store: RecordStore) -> None:
        self._context = context
        self._store = store
        self._lock = threading.Lock()
        self._choice: ResumeChoice | None = None

    def checkpoint(self, trust: Trust, wait_seconds: float) -> str | None:
        """Return the path to resume from; None to start from the beginning.

        Args:
            trust: what counts as complete; see `trainwarden.checkpoint.verify`.
            wait_seconds: how long a rank other than 0 waits.

        Raises:
            RunRefused: a rank other than 0 cannot obey rank 0's choice.
        """
        context = self._context
        with self._lock:
            if context.rank > 0:
                return self._obey(Deadline(wait_seconds))
            # Ranks that ask later than others must not get another answer.
            if self._choice is None or (context.world_size or 1) == 1:
                self._choice = self._choose(trust)
            return self._choice.path

    def _choose(self, trust: Trust) -> ResumeChoice:
        chosen = best_checkpoint(self._context.folder, trust)
        if self._context.beginning and self._context.beginning.restarted:
            logger.warning("restarted by Trainwarden: %s", _described(chosen))
        choice = ResumeChoice(
            attempt_key=str(self._context.key),
            path=chosen.path if chosen else None,
            step=chosen.step if chosen else None,
            size_bytes=_measured(chosen.path) if chosen else None,
            time=time.time(),
            host=host_name(),
            pid=os.getpid(),
            process_start=process_start_ticks(os.getpid()),
            trust=trust,
        )
        try:
            call_with_deadline(
                lambda: self._store.write(RESUME, choice), _WRITE_SECONDS, thread_name="trainwarden-resume"
            )
        except (OSError, DeadlineExceeded) as error:
            logger.error("the chosen checkpoint cannot be recorded, so other ranks will not resume: %s", error)  # noqa: TRY400  # no trace
        return choice

    def _obey(self, deadline: Deadline) -> str | None:
        choice = self._await_choice(deadline)
        if choice is None:
            return self._choose_alone()
        if choice.path is not None:
            self._await_checkpoint(choice, choice.path, deadline)
        return choice.path

    def _await_choice(self, deadline: Deadline) -> ResumeChoice | None:
        """Return rank 0's choice; None where the record of rank 0 is on another host."""
        context = self._context
        waiting = _RankZero(context, self._store)
        for seconds in _pauses(deadline):
            if choice := waiting.choice():
                return choice
            if not waiting.has_written and seconds >= LOCAL_WAIT_SECONDS and _is_alone_on_its_disk(context.folder):
                return None
        raise RunRefused(
            f"rank 0 has not chosen a checkpoint to resume from in {deadline.seconds:g} s, as seen by rank "
            f"{context.rank} on {host_name()} in {context.folder}: resume_checkpoint() is for all ranks to call, and "
            f"the folder of the record, or its copy in S3, for all hosts to share"
        )

    def _choose_alone(self) -> str | None:
        context = self._context
        text = (
            f"rank {context.rank} on {host_name()} sees no record of rank 0: {context.folder} is on a disk of this "
            f"host, so its ranks cannot obey rank 0's choice of a checkpoint. Share the folder between the hosts"
        )
        if named := os.environ.get("TRAINWARDEN_RESUME_CHECKPOINT"):
            logger.warning("%s. It resumes from TRAINWARDEN_RESUME_CHECKPOINT", text)
            chosen = _best([Checkpoint(absolute(named))])
            return chosen.path if chosen else None
        if _is_restart(context):
            raise RunRefused(f"{text}, or give all ranks TRAINWARDEN_RESUME_CHECKPOINT")
        logger.warning("%s. It starts from the beginning, as the first attempt of a run does", text)
        return None

    def _await_checkpoint(self, choice: ResumeChoice, path: str, deadline: Deadline) -> None:
        """Wait until this host sees the checkpoint as rank 0 does."""
        if is_remote(path):
            return
        problem = ""
        for _ in _pauses(deadline):
            size = _measured(path)
            if size is None:
                problem = "it is not there"
            elif size < (choice.size_bytes or 0):
                problem = f"it has {size} bytes, and {choice.size_bytes} on {choice.host}"
            else:
                return
        step = "" if choice.step is None else f", of step {choice.step},"
        raise RunRefused(
            f"rank 0 on {choice.host} chose checkpoint {path}{step} to resume from, and rank {self._context.rank} on "
            f"{host_name()} does not see it after {deadline.seconds:g} s: {problem}. Ranks never resume from "
            f"different checkpoints"
        )


class _RankZero:
    """What the record holds of rank 0's process while another rank waits for its choice.

    After a restart within an attempt, by torchrun, the choice of the earlier process lies there first. A choice is the
    present one if its process lives, or if it is newer than this process.
    """

    def __init__(self, context: RunContext, store: RecordStore) -> None:
        self._context = context
        self._store = store
        self._next_fetch = time.monotonic() + FETCH_SECONDS if store.has_copy else math.inf
        self._first_update: float | None = None
        # In this attempt or an earlier one: the record that it chooses from is then in this folder.
        self.has_written = False

    def choice(self) -> ResumeChoice | None:
        """Return the choice, if it is of this start."""
        folder = self._context.folder
        metadata = read_metadata(folder)
        self.has_written = self.has_written or metadata is not None
        if isinstance(metadata, Metadata) and metadata.attempt_key == str(self._context.key):
            return self._valid(metadata, read_choice(folder))
        # Rank 0 has not begun, or its record is on another host.
        return self._fetched() if time.monotonic() >= self._next_fetch else None

    def _fetched(self) -> ResumeChoice | None:
        found = self._store.fetch((METADATA, RESUME), FETCH_SECONDS)
        self._next_fetch = time.monotonic() + FETCH_SECONDS
        contents = {name: FileContent(data, 0.0) for name, data in found.items()}
        metadata = parse_metadata(contents[METADATA], METADATA) if METADATA in contents else None
        if not isinstance(metadata, Metadata) or metadata.attempt_key != str(self._context.key):
            return None
        self.has_written = True
        return self._valid(metadata, parse_choice(contents[RESUME]) if RESUME in contents else None)

    def _valid(self, metadata: Metadata, choice: ResumeChoice | None) -> ResumeChoice | None:
        """Return the choice if it is of this start, and None else; `metadata` is of this attempt."""
        if choice is None or choice.attempt_key != metadata.attempt_key:
            return None
        if (choice.time or 0.0) >= self._context.start:
            return choice
        if choice.host == host_name() and choice.pid and process_start_ticks(choice.pid) == choice.process_start:
            return choice
        if choice.pid != metadata.pid or choice.host != metadata.host or metadata.last_update is None:
            return None
        if self._first_update is None:
            self._first_update = metadata.last_update
        return choice if metadata.last_update > self._first_update else None


def best_checkpoint(folder: Path, trust: Trust) -> Checkpoint | None:
    """Return the checkpoint to resume from, by the environment and the record; log why others were rejected."""
    progress = last_progress(folder)
    recorded = _of_this_line(folder, progress.known_checkpoints() if progress else ())
    named = os.environ.get("TRAINWARDEN_RESUME_CHECKPOINT")
    if not named:
        return _best(recorded, trust)
    path = absolute(named)
    first = next((one for one in recorded if one.path == path), Checkpoint(path))
    return _best([first], trust, recorded)


def _described(chosen: Checkpoint | None) -> str:
    if chosen is None:
        return "from the beginning, for there is no checkpoint to resume from"
    return f"from checkpoint {'of unknown step' if chosen.step is None else f'step {chosen.step}'}, {chosen.path}"


def _of_this_line(folder: Path, recorded: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Leave out what an attempt has overwritten that went on after a newer one had begun."""
    kept = []
    for checkpoint in recorded:
        rival = overwritten(folder, checkpoint)
        if rival is None:
            kept.append(checkpoint)
        else:
            logger.error(
                "checkpoint %s is left out: attempt %s on %s has saved there after a newer attempt had begun",
                checkpoint.path, rival.attempt, rival.host,
            )  # fmt: skip
    return tuple(kept)


def _best(
    candidates: tuple[Checkpoint, ...] | list[Checkpoint],
    trust: Trust = "layout",
    instead: tuple[Checkpoint, ...] = (),
) -> Checkpoint | None:
    chosen, rejected = choose(candidates, trust)
    if chosen is None and instead:
        chosen, more = choose(instead, trust)
        rejected += more
    for line in rejected:
        logger.warning("%s", line)
    if rejected and chosen is None:
        logger.error("none of the %d known checkpoints can be resumed from", len(rejected))
    return chosen


def _measured(path: str) -> int | None:
    try:
        return call_with_deadline(lambda: size_of(path), _MEASURE_SECONDS, thread_name="trainwarden-resume")
    except DeadlineExceeded:
        return None


def _pauses(deadline: Deadline) -> Iterator[float]:
    """Yield the seconds waited, before each look, until the deadline; the last look is after it."""
    pause = _FIRST_PAUSE_SECONDS
    while remaining := deadline.remaining:
        yield deadline.seconds - remaining
        time.sleep(min(pause, remaining))
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
    yield deadline.seconds


def _is_restart(context: RunContext) -> bool:
    stated = (os.environ.get(name) for name in ("TORCHELASTIC_RESTART_COUNT", "TRAINWARDEN_ATTEMPT"))
    return context.key.generation > 0 or any(number not in {None, "", "0"} for number in stated)


def _is_alone_on_its_disk(folder: Path) -> bool:
    """Whether the folder is on a disk of this host. False where it may be shared, or where that is unknown."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  # one reader
            mounts = [line.split() for line in lines]
    except OSError:
        return False
    # The last mount over the longest path counts.
    here, found = f"{folder.resolve()}/", ("", "")
    for fields in mounts:
        point, kind = fields[4].rstrip("/") + "/", fields[fields.index("-") + 1]
        if here.startswith(point) and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1] in _LOCAL_FILE_SYSTEMS
