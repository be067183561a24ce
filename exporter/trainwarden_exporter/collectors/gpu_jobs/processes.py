"""Processes of the node that work for a job or a run: by control group, environment and open device files.

Each process is read when it is new and once a minute after that.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.gpu_jobs.claims import short_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

MAX_PROCESSES = 20_000
# A process may exec another program with another environment: read a new process again for a while, then now and then.
YOUNG_SECONDS = 10.0
AGAIN_SECONDS = 60.0
# A process of a run opens its GPUs after it has loaded its modules.
WAITING_SECONDS = 15.0
MAX_ENVIRON = 1 << 20
MAX_FILES = 4096
_CGROUP = re.compile(rb"/job_(\d{1,20})(?:/step_([A-Za-z0-9_-]{1,32}))?")
_DEVICE = re.compile(r"/dev/nvidia(\d{1,3})")
_NAMES = frozenset(
    b"SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_GPUS SLURM_JOB_GPUS SLURM_JOB_USER SLURM_JOB_PARTITION "
    b"TRAINWARDEN_RUN_ID".split()
)
# Steps that SLURM starts itself have these numbers.
_OWN_STEPS = {"4294967291": "batch", "4294967292": "extern", "4294967290": "interactive"}


@dataclass(frozen=True)
class ProcessJob:
    """The job and the run of one process.

    Attributes:
        job_id: SLURM's; empty where it is in no job.
        gpus: numbers of the device files: SLURM's, of the step, else of the job; else those that the process has open.
        readable: whether its environment could be read.
    """

    job_id: str = ""
    step_id: str = ""
    user: str = ""
    partition: str = ""
    run_id: str = ""
    gpus: frozenset[int] = frozenset()
    readable: bool = True


NO_JOB = ProcessJob()


@dataclass
class _KnownProcess:
    identity: tuple[int, int]
    job: ProcessJob
    since: float
    read_at: float


class Processes:
    """The processes that work for a job or a run.

    Args:
        procfs: where /proc is mounted.
        now: the clock, monotonic.
    """

    def __init__(self, procfs: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._now = now
        self._known: dict[str, _KnownProcess] = {}
        self.reads = 0

    def jobs(self) -> list[ProcessJob]:
        """Return the jobs of the processes that have one; raises `OSError` if /proc cannot be listed."""
        now = self._now()
        known: dict[str, _KnownProcess] = {}
        for pid, path in self._pids():
            try:
                status = os.stat(path)  # noqa: PTH116  # a Path for each process would cost more than the rest
                known[pid] = self._known_process(pid, path, (status.st_ino, status.st_ctime_ns), now)
            except OSError:  # noqa: PERF203  # it has ended
                continue
        self._known = known
        return [each.job for each in known.values() if each.job != NO_JOB]

    def _known_process(self, pid: str, path: str, identity: tuple[int, int], now: float) -> _KnownProcess:
        known = self._known.get(pid)
        if known is None or known.identity != identity:
            return self._read(path, identity, now, now)
        young = known.read_at - known.since < YOUNG_SECONDS
        # Spread by pid over half a minute, not all in one sample.
        pause = AGAIN_SECONDS + int(pid) % 30
        if known.job != NO_JOB and not known.job.gpus:
            pause = WAITING_SECONDS
        stale = now - known.read_at > pause
        return self._read(path, identity, known.since, now) if young or stale else known

    def _read(self, path: str, identity: tuple[int, int], since: float, now: float) -> _KnownProcess:
        self.reads += 1
        return _KnownProcess(identity, job_of(path), since, now)

    def _pids(self) -> Iterator[tuple[str, str]]:
        with os.scandir(self._procfs) as entries:
            found = 0
            for entry in entries:
                if entry.name.isdigit():
                    found += 1
                    if found > MAX_PROCESSES:
                        return
                    yield entry.name, entry.path


def job_of(process: str) -> ProcessJob:
    """Return the job of a process, given its folder in /proc; raises `OSError` if the process is gone."""
    match = _CGROUP.search(read_file(f"{process}/cgroup", 8192))
    job_id, step_id = (match[1].decode(), (match[2] or b"").decode()) if match else ("", "")
    try:
        environment = _environment(f"{process}/environ")
    except PermissionError:
        return ProcessJob(job_id, step_id, readable=False) if job_id else NO_JOB
    if not environment:
        return ProcessJob(job_id, step_id) if job_id else NO_JOB
    step = environment.get("SLURM_STEP_ID", "")
    indices = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS", "")
    job_id = job_id or _number(environment.get("SLURM_JOB_ID", ""))  # root alone writes control groups
    run_id = _run_id(environment)
    # Not CUDA_VISIBLE_DEVICES, whose numbers begin at 0 in every job; SLURM's are those of the node.
    gpus = frozenset(int(index) for index in indices.split(",") if _number(index) and len(index) < 4)
    if not gpus and (job_id or run_id):
        gpus = open_gpus(process)
    return ProcessJob(
        job_id=job_id,
        step_id=step_id or _OWN_STEPS.get(step, _number(step)),
        user=short_label(environment.get("SLURM_JOB_USER", "")),
        partition=short_label(environment.get("SLURM_JOB_PARTITION", "")),
        run_id=run_id,
        gpus=gpus,
    )


def open_gpus(process: str) -> frozenset[int]:
    """Return the numbers of the GPUs' device files that a process has open; empty without the right to see them."""
    found = set()
    try:
        with os.scandir(f"{process}/fd") as entries:
            for entry, _ in zip(entries, range(MAX_FILES), strict=False):
                match = _DEVICE.fullmatch(_target(entry.path))
                if match:
                    found.add(int(match[1]))
    except OSError:
        return frozenset()
    return frozenset(found)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  # a Path for each would cost more than the call
    except OSError:
        return ""


def _environment(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in read_file(path, MAX_ENVIRON).split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in _NAMES:
            found.setdefault(name.decode(), value[:512].decode("utf-8", "replace"))
    return found


def _run_id(environment: Mapping[str, str]) -> str:
    try:
        return check_run_id(environment.get("TRAINWARDEN_RUN_ID", ""))
    except InvalidRunId:
        return ""


def _number(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) <= 20 else ""


def read_file(path: str, limit: int) -> bytes:
    """Return up to `limit` bytes of a file; raises `OSError`."""
    # Not open(): on a node with a thousand processes this read is most of the cost.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 65536))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
