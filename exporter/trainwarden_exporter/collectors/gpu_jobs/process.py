"""What a process says of the job and the run it works for: its control group, its environment, its device files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.gpu_jobs.claim import word

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ENVIRON = 1 << 20
MAX_FILES = 4096
_CGROUP = re.compile(rb"/job_(\d{1,20})(?:/step_([A-Za-z0-9_-]{1,32}))?")
_DEVICE = re.compile(r"/dev/nvidia(\d{1,3})")
_NAMES = frozenset(
    b"SLURM_JOB_ID SLURM_STEP_ID SLURM_STEP_GPUS SLURM_JOB_GPUS SLURM_JOB_USER SLURM_JOB_PARTITION "
    b"TRAINWARDEN_RUN_ID".split()
)
# The numbers that SLURM gives to steps that are its own.
_OWN_STEPS = {"4294967291": "batch", "4294967292": "extern", "4294967290": "interactive"}


@dataclass(frozen=True)
class Work:
    """What one process works for.

    Attributes:
        job_id: SLURM's; empty where it is in no job.
        gpus: by the numbers of their device files: as SLURM says, of its step, else of its job; else those it has open.
        readable: its environment could be read.
    """

    job_id: str = ""
    step_id: str = ""
    user: str = ""
    partition: str = ""
    run_id: str = ""
    gpus: frozenset[int] = frozenset()
    readable: bool = True


NOTHING = Work()


def work_of(process: str) -> Work:
    """Return what a process works for, given its folder in /proc; raises `OSError` if it is gone."""
    match = _CGROUP.search(_read(f"{process}/cgroup", 8192))
    job_id, step_id = (match[1].decode(), (match[2] or b"").decode()) if match else ("", "")
    try:
        said = _environment(f"{process}/environ")
    except PermissionError:
        return Work(job_id, step_id, readable=False) if job_id else NOTHING
    if not said:
        return Work(job_id, step_id) if job_id else NOTHING
    step = said.get("SLURM_STEP_ID", "")
    indices = said.get("SLURM_STEP_GPUS") or said.get("SLURM_JOB_GPUS", "")
    job_id = job_id or _number(said.get("SLURM_JOB_ID", ""))  # the control group is root's word
    run_id = _run_id(said)
    # Only SLURM's own count is the node's: what CUDA_VISIBLE_DEVICES says begins at 0 in every job.
    gpus = frozenset(int(index) for index in indices.split(",") if _number(index) and len(index) < 4)
    if not gpus and (job_id or run_id):
        gpus = open_gpus(process)
    return Work(
        job_id=job_id,
        step_id=step_id or _OWN_STEPS.get(step, _number(step)),
        user=word(said.get("SLURM_JOB_USER", "")),
        partition=word(said.get("SLURM_JOB_PARTITION", "")),
        run_id=run_id,
        gpus=gpus,
    )


def open_gpus(process: str) -> frozenset[int]:
    """Return the device files of GPUs that a process has open; empty where that may not be seen."""
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
    for item in _read(path, MAX_ENVIRON).split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in _NAMES:
            found.setdefault(name.decode(), value[:512].decode("utf-8", "replace"))
    return found


def _run_id(said: Mapping[str, str]) -> str:
    try:
        return check_run_id(said.get("TRAINWARDEN_RUN_ID", ""))
    except InvalidRunId:
        return ""


def _number(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) <= 20 else ""


def _read(path: str, limit: int) -> bytes:
    # Without a stream around it: on a node with a thousand processes this is most of the cost.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 65536))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
