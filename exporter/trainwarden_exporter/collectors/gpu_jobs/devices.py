"""What SLURM's device control groups allow, where they are of the first version: the second keeps it in the kernel."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu_jobs.claim import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu_jobs.gpus import Gpus

MAX_GROUPS = 4096
MAX_BYTES = 65536
_JOB = re.compile(r"job_(\d{1,20})")
_STEP = re.compile(r"step_([A-Za-z0-9_-]{1,32})")
# Character devices of NVIDIA's driver: from 192 on they are no GPUs.
_ALLOWED = re.compile(rb"^c 195:(\d{1,3}) ", re.MULTILINE)


def claims_of_groups(sysfs: Path, gpus: Gpus) -> tuple[list[Claim], int]:
    """Return which GPUs the jobs' groups allow, and how many groups could not be read."""
    claims: list[Claim] = []
    unreadable = 0
    for path, job_id, step_id in _groups(sysfs / "fs/cgroup/devices"):
        try:
            allowed = _ALLOWED.findall(_read(path))
        except FileNotFoundError:
            continue
        except OSError:
            unreadable += 1
            continue
        found = (gpus.by_minor(int(minor)) for minor in allowed)
        claims += [Claim(gpu, job_id, step_id) for gpu in found if gpu]
    return claims, unreadable


def _groups(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each step's list of devices, of a job without steps its own: .../slurm[_node]/uid_U/job_J/step_S."""
    count = 0
    for slurm in _folders(str(root), re.compile(r"slurm(?:_[\w.-]{1,64})?")):
        for uid in _folders(slurm, re.compile(r"uid_\d{1,10}")):
            for job in _folders(uid, _JOB):
                steps = _folders(job, _STEP)
                for group in steps or [job]:
                    count += 1
                    if count > MAX_GROUPS:
                        return
                    step = _STEP.fullmatch(os.path.basename(group))  # noqa: PTH119  # of a text
                    job_id = os.path.basename(job).removeprefix("job_")  # noqa: PTH119  # of a text
                    yield f"{group}/devices.list", job_id, step[1] if step else ""


def _folders(path: str, name: re.Pattern[str]) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if name.fullmatch(entry.name))
    except OSError:
        return []


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)
