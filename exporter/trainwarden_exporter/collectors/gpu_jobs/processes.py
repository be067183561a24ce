"""Processes of the node that work for a job or a run: by control group, ancestors, environment and open device files.

Any process may have `SLURM_JOB_ID` in its environment. It is in a job where slurmd, as root, put it into the job's
control group, or where it descends from the job's slurmstepd, which root runs.

Each process is read when it is new and once a minute after that.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.capabilities import reading_any
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.gpu_jobs.claims import short_label
from trainwarden_exporter.core.owned_folder import ReadBudget
from trainwarden_exporter.core.process_files import read_environment, read_file
from trainwarden_exporter.core.slurm_cgroup import job_and_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# Processes of one user that are looked at, and processes of the node that are listed at all.
MAX_PROCESSES, MAX_LISTED = 20_000, 200_000
# A process may exec another program with another environment: read a new process again for a while, then now and then.
YOUNG_SECONDS = 10.0
AGAIN_SECONDS = 60.0
# A process of a run opens its GPUs after it has loaded its modules.
WAITING_SECONDS = 15.0
MAX_FILES = 4096
# What looking at the processes of one user may take in a sample; those that are left are looked at in the next. A user
# can have thousands, each with thousands of open files.
MILLISECONDS_OF_USER = 1000
# slurmstepd: [4711.0], slurmstepd-wlm: [4711.batch] (Debian), [4711+1.0]
_STEPD = re.compile(rb"slurmstepd[\w.-]{0,16}: \[(\d{1,20})(?:\+\d{1,6})?\.([A-Za-z0-9_]{1,32})[].]")
_PARENT = re.compile(rb"^PPid:\s*(\d+)$", re.MULTILINE)
_UID = re.compile(rb"^Uid:\s*(\d+)\s", re.MULTILINE)
MAX_ANCESTORS = 64
_DEVICE = re.compile(r"/dev/nvidia(\d{1,3})")
# Of NVIDIA's character devices.
_MAJOR = 195
_NAMES = frozenset(
    b"SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_GPUS SLURM_JOB_GPUS SLURM_JOB_PARTITION TRAINWARDEN_RUN_ID".split()
)
# Steps that SLURM starts itself have these numbers.
_OWN_STEPS = {"4294967291": "batch", "4294967292": "extern", "4294967290": "interactive"}


@dataclass(frozen=True)
class ProcessJob:
    """The job and the run of one process.

    Attributes:
        job_id: SLURM's; empty where it is in no job.
        user: the name of the user that runs it.
        gpus: numbers of device files by its environment: SLURM's, of the step, else of the job.
        open_gpus: numbers of the device files that it has open, and that its environment names if it names any.
        uid: of the user that runs it, where it names a run; -1 if unknown.
        readable: whether its environment could be read.
    """

    job_id: str = ""
    step_id: str = ""
    user: str = ""
    partition: str = ""
    run_id: str = ""
    gpus: frozenset[int] = frozenset()
    open_gpus: frozenset[int] = frozenset()
    uid: int = -1
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
        user_name: returns the name of a user's number.
        now: the clock, monotonic.
    """

    def __init__(
        self, procfs: Path, user_name: Callable[[int], str] = str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._procfs = procfs
        self._user_name = user_name
        self._now = now
        self._known: dict[str, _KnownProcess] = {}
        self._budget = ReadBudget(MILLISECONDS_OF_USER)
        self.reads = 0

    def jobs(self) -> list[ProcessJob]:
        """Return the jobs of the processes that have one; raises `OSError` if /proc cannot be listed."""
        now = self._now()
        known: dict[str, _KnownProcess] = {}
        of_users: Counter[int] = Counter()
        self._budget.begin()
        for pid, path in self._pids():
            try:
                status = os.stat(path)  # noqa: PTH116  # a Path for each process would cost more than the rest
                of_users[status.st_uid] += 1
                if of_users[status.st_uid] > MAX_PROCESSES:
                    continue
                process = self._known_process(pid, path, status, now)
            except OSError:  # it has ended
                continue
            if process is not None:
                known[pid] = process
        self._known = known
        return [each.job for each in known.values() if each.job != NO_JOB]

    def _known_process(self, pid: str, path: str, status: os.stat_result, now: float) -> _KnownProcess | None:
        """Return a process as it is known, read again if it is time; None for one that there is no time to read."""
        identity = status.st_ino, status.st_ctime_ns
        known = self._known.get(pid)
        if known is None or known.identity != identity:
            return self._read(path, status, now, now)
        young = known.read_at - known.since < YOUNG_SECONDS
        # Spread by pid over half a minute, not all in one sample.
        pause = AGAIN_SECONDS + int(pid) % 30
        if known.job != NO_JOB and not (known.job.gpus or known.job.open_gpus):
            pause = WAITING_SECONDS
        stale = now - known.read_at > pause
        return (self._read(path, status, known.since, now) or known) if young or stale else known

    def _read(self, path: str, status: os.stat_result, since: float, now: float) -> _KnownProcess | None:
        # Any process can make itself root's by being unreadable.
        user = status.st_uid or _real_uid(path)
        if not self._budget.take(user, 0):
            return None
        self.reads += 1
        began = self._now()
        with reading_any():
            job = job_of(path, self._user_name)
        self._budget.take(user, round(1000 * (self._now() - began)))
        return _KnownProcess((status.st_ino, status.st_ctime_ns), job, since, now)

    def _pids(self) -> Iterator[tuple[str, str]]:
        with os.scandir(self._procfs) as entries:
            found = 0
            for entry in entries:
                if entry.name.isdigit():
                    found += 1
                    if found > MAX_LISTED:
                        return
                    yield entry.name, entry.path


def job_of(process: str, user_name: Callable[[int], str] = str) -> ProcessJob:
    """Return the job of a process, given its folder in /proc; raises `OSError` if the process is gone."""
    job_id, step_id = _group_job(process)
    try:
        environment = read_environment(process, _NAMES)
    except PermissionError:
        return ProcessJob(job_id, step_id, readable=False) if job_id else NO_JOB
    if not environment:
        return ProcessJob(job_id, step_id, _user(process, user_name)) if job_id else NO_JOB
    if not job_id and "SLURM_JOB_ID" in environment:
        job_id, step_id = _ancestor_job(process)
    run_id = _run_id(environment)
    if not job_id:
        return ProcessJob(run_id=run_id, open_gpus=open_gpus(process), uid=_real_uid(process)) if run_id else NO_JOB
    indices = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS", "")
    # Not CUDA_VISIBLE_DEVICES, whose numbers begin at 0 in every job; SLURM's are those of the node.
    gpus = frozenset(int(index) for index in indices.split(",") if _number(index) and len(index) < 4)
    # A process that looks at all GPUs of the node, as by NVML, has them all open.
    opened = open_gpus(process)
    return ProcessJob(
        job_id=job_id,
        step_id=step_id or _OWN_STEPS.get(step := environment.get("SLURM_STEP_ID", ""), _number(step)),
        user=_user(process, user_name),
        partition=short_label(environment.get("SLURM_JOB_PARTITION", "")),
        run_id=run_id,
        gpus=gpus,
        open_gpus=opened & gpus if gpus else opened,
        uid=_real_uid(process) if run_id else -1,
    )


def _group_job(process: str) -> tuple[str, str]:
    """Return the job and the step of the control group of a process; empty if it is in none."""
    for line in read_file(f"{process}/cgroup", 8192).decode("utf-8", "replace").split("\n"):
        job_id, step_id = job_and_step(line.split(":", 2)[-1])
        if job_id:
            return job_id, step_id
    return "", ""


def _ancestor_job(process: str) -> tuple[str, str]:
    """Return job and step of the slurmstepd that a process descends from; empty if it descends from none."""
    procfs = os.path.dirname(process)  # noqa: PTH120  # of a text
    for _ in range(MAX_ANCESTORS):
        match = _PARENT.search(read_file(f"{process}/status", 8192))
        if match is None or int(match[1]) < 2:
            break
        process = f"{procfs}/{match[1].decode()}"
        try:
            step = _STEPD.match(read_file(f"{process}/cmdline", 256))
            # The exporter's own user is trusted as root is.
            if step is not None and _real_uid(process) in (0, os.getuid()):
                return step[1].decode(), _OWN_STEPS.get(step[2].decode(), step[2].decode())
        except OSError:
            break
    return "", ""


def _user(process: str, user_name: Callable[[int], str]) -> str:
    uid = _real_uid(process)
    return "" if uid < 0 else short_label(user_name(uid))


def _real_uid(process: str) -> int:
    """Return the number of the user that runs a process; -1 if unknown.

    The owner of its folder may be root: any process can have that by making itself unreadable.
    """
    try:
        match = _UID.search(read_file(f"{process}/status", 8192))
    except OSError:
        return -1
    return int(match[1]) if match else -1


def open_gpus(process: str) -> frozenset[int]:
    """Return the numbers of the GPUs' device files that a process has open; empty without the right to see them."""
    found = set()
    try:
        with os.scandir(f"{process}/fd") as entries:
            for entry, _ in zip(entries, range(MAX_FILES), strict=False):
                match = _DEVICE.fullmatch(_target(entry.path))
                if match and _may_be_device(entry.path, int(match[1])):
                    found.add(int(match[1]))
    except OSError:
        return frozenset()
    return frozenset(found)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  # a Path for each would cost more than the call
    except OSError:
        return ""


def _may_be_device(link: str, minor: int) -> bool:
    """Return whether an open file of a GPU's name can be the GPU: a user has any file at any path of its own namespace.

    Only a link into a copy of procfs, which holds no open files, leads nowhere.
    """
    try:
        status = os.stat(link)  # noqa: PTH116  # a Path for each would cost more than the call
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(_MAJOR, minor)


def _run_id(environment: Mapping[str, str]) -> str:
    try:
        return check_run_id(environment.get("TRAINWARDEN_RUN_ID", ""))
    except InvalidRunId:
        return ""


def _number(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) <= 20 else ""
