"""Room and answering time of the file systems that runs write to: each is read once for all runs, in its own thread."""

from __future__ import annotations

import operator
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.runs import filesystem_metrics as metrics
from trainwarden_exporter.collectors.runs.limits import fair_order
from trainwarden_exporter.core.metric import CachedSamples, Families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.collectors.runs.record import RunRecord

RECORD, LOGS, CHECKPOINTS = "record", "logs", "checkpoints"
ASK_SECONDS = 30.0
TIMEOUT_SECONDS = 5.0
# Each that hangs costs a thread.
MAX_FILESYSTEMS = 64
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_TEMPLATE = re.compile(r"[{*?\[]")


@dataclass(frozen=True)
class Room:
    """What a file system answered: bytes and files, each None where it counts none, and the seconds that it took."""

    available: float | None
    size: float | None
    files: float | None
    seconds: float


class _Question:
    """One call, in a thread of its own that may hang for ever."""

    def __init__(self, mount: str, ask: Callable[[str], Room]) -> None:
        self.began = time.monotonic()
        self.answer: Room | None = None
        self.is_done = False
        threading.Thread(target=self._run, args=(mount, ask), name="statvfs", daemon=True).start()

    def _run(self, mount: str, ask: Callable[[str], Room]) -> None:
        try:
            self.answer = ask(mount)
        except OSError:
            pass  # its metrics are absent
        finally:
            self.is_done = True


class RunFilesystems:
    """Asks the mounts on which the records, logs and checkpoints of runs are; `add` waits for none of them.

    The mount of a path is found by its name alone: a path that a user records is never looked up, and links in it are
    not followed.

    Args:
        runs: the runs folder.
        mounts: the file that lists the mounts.
        ask: asks one mount.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        runs: Path,
        *,
        mounts: Path = Path("/proc/self/mountinfo"),
        ask: Callable[[str], Room] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = os.path.realpath(runs)
        self._mounts_file = mounts
        self._ask = ask or ask_room
        self._clock = clock
        self._asked_at = float("-inf")
        self._mounts: tuple[str, ...] = ()
        self._of_path: dict[str, str | None] = {}
        # Of each run its paths and their mounts, until then too.
        self._of_run: dict[str, tuple[tuple[str | None, str | None], dict[str, str]]] = {}
        self._questions: dict[str, _Question] = {}
        self._rooms: dict[str, Room] = {}
        # Of each mount what it answered last, or for how many seconds it has not answered, if that is too long.
        self._answers: dict[str, Room | float] = {}
        # Of each run, until the file systems are asked again.
        self._samples: dict[str, CachedSamples] = {}

    def ask(self, runs: Iterable[tuple[int, RunRecord]]) -> None:
        """Ask what the runs that are running stand on, if it is time, and take what was answered meanwhile.

        Each run comes with the uid of its user: where there are too many file systems, each user has a share.
        """
        self._take_answers()
        if self._clock() - self._asked_at < ASK_SECONDS:
            return
        self._asked_at = self._clock()
        self._samples, self._of_run = {}, {}
        self._mounts, self._of_path = mount_points(self._mounts_file), {}
        of_users = {(owner, mount) for owner, record in runs for mount in self._uses(record).values()}
        in_turn = fair_order(of_users, operator.itemgetter(0), operator.itemgetter(1))
        wanted = list(dict.fromkeys(mount for _, mount in in_turn))[:MAX_FILESYSTEMS]
        self._rooms = {mount: room for mount, room in self._rooms.items() if mount in wanted}
        for mount in wanted:
            if mount not in self._questions and len(self._questions) < MAX_FILESYSTEMS:
                self._questions[mount] = _Question(mount, self._ask)

    def add(self, families: Families, record: RunRecord) -> None:
        """Add room and answering time of the file systems under one run."""
        answers = [(use, self._answers.get(mount)) for use, mount in self._uses(record).items()]
        known = self._samples.get(record.run_id)
        if known is None or known.made_from != answers:
            own = Families()
            for use, answer in answers:
                _add_answer(own, record.run_id, use, answer)
            known = self._samples[record.run_id] = CachedSamples(answers, own.columns())
        families.extend(known.columns)

    def _take_answers(self) -> None:
        now = time.monotonic()
        for mount, question in list(self._questions.items()):
            if question.is_done:
                del self._questions[mount]
                self._rooms.pop(mount, None)
                if question.answer is not None:
                    self._rooms[mount] = question.answer
        waited = {mount: now - question.began for mount, question in self._questions.items()}
        late = {mount: seconds for mount, seconds in waited.items() if seconds > TIMEOUT_SECONDS}
        self._answers = {**self._rooms, **late}

    def _uses(self, record: RunRecord) -> dict[str, str]:
        """Return the mount of each kind of file that a running run writes."""
        if record.state != "running":
            return {}
        metadata, progress = record.metadata, record.progress
        log_path = metadata.log_path if metadata is not None else None
        checkpoint = progress.checkpoint.path if progress is not None and progress.checkpoint is not None else None
        known = self._of_run.get(record.run_id)
        if known is None or known[0] != (log_path, checkpoint):
            paths = {RECORD: f"{self._runs}/{record.run_id}"}
            if log_path:
                paths[LOGS] = _TEMPLATE.split(log_path, maxsplit=1)[0]
            if checkpoint is not None:
                paths[CHECKPOINTS] = checkpoint
            found = {use: self._mount(path) for use, path in paths.items()}
            uses = {use: mount for use, mount in found.items() if mount is not None}
            known = self._of_run[record.run_id] = ((log_path, checkpoint), uses)
        return known[1]

    def _mount(self, path: str) -> str | None:
        if path not in self._of_path:
            whole = os.path.normpath(path)
            under = (mount for mount in self._mounts if mount in ("/", whole) or whole.startswith(f"{mount}/"))
            self._of_path[path] = max(under, key=len, default=None) if path.startswith("/") else None
        return self._of_path[path]


def _add_answer(families: Families, run_id: str, use: str, answer: Room | float | None) -> None:
    labels = {"run_id": run_id, "use": use}
    if isinstance(answer, float):
        families.add(metrics.TRAINING_FILESYSTEM_ANSWERING, 0, **labels)
        families.add(metrics.TRAINING_FILESYSTEM_ANSWER_SECONDS, answer, **labels)
    elif answer is not None:
        families.add(metrics.TRAINING_FILESYSTEM_ANSWERING, 1, **labels)
        families.add(metrics.TRAINING_FILESYSTEM_ANSWER_SECONDS, answer.seconds, **labels)
        families.add(metrics.TRAINING_FILESYSTEM_AVAIL_BYTES, answer.available, **labels)
        families.add(metrics.TRAINING_FILESYSTEM_SIZE_BYTES, answer.size, **labels)
        families.add(metrics.TRAINING_FILESYSTEM_FILES_AVAIL, answer.files, **labels)


def ask_room(mount: str) -> Room:
    """Ask a file system how much room it has; raise `OSError` if it does not answer."""
    began = time.monotonic()
    found = os.statvfs(mount)
    block = found.f_frsize or found.f_bsize
    files = found.f_favail if found.f_files else None
    seconds = time.monotonic() - began
    if not found.f_blocks:
        # As one in user space answers whoever may not use it, and object stores do: no size, which is not a full one.
        return Room(None, None, files, seconds)
    return Room(found.f_bavail * block, found.f_blocks * block, files, seconds)


def mount_points(file: Path) -> tuple[str, ...]:
    """Return where something is mounted, as the kernel lists it; the root alone where it cannot be read."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return ("/",)
    fields = [line.split(b" ") for line in lines]
    plain = {_ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), each[4]) for each in fields if len(each) > 4}
    return tuple(sorted(os.fsdecode(each) for each in plain)) or ("/",)
