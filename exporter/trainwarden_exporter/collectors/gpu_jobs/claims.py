"""Which job has which GPU, as the files of SLURM's prolog and its device control groups record it, merged into one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.redaction import name_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu_jobs.gpus import NodeGpu, NodeGpus

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
LABEL_BYTES = 64
MAX_FILE_BYTES = 4096
MAX_FILES = 1024
MAX_GROUPS = 4096
MAX_DEVICES_BYTES = 65536
# 0 is a GPU, 0.3 an instance of it, which counts as the GPU.
_INDEX = re.compile(r"(\d{1,3})(?:\.\d{1,3})?")
_JOB = re.compile(r"job_(\d{1,20})")
_STEP = re.compile(r"step_([A-Za-z0-9_-]{1,32})")
# Character devices of NVIDIA's driver: from 192 on they are no GPUs.
_ALLOWED = re.compile(rb"^c 195:(\d{1,3}) ", re.MULTILINE)


class Proof(IntEnum):
    """What shows that a job has a GPU.

    ENVIRONMENT: a variable of a process of the job, which any process may set to anything.
    OPEN: one of its processes has the device open as well.
    SLURM: a file of the prolog or a device control group, which root alone writes.
    """

    ENVIRONMENT = 0
    OPEN = 1
    SLURM = 2


@dataclass(frozen=True)
class GpuClaim:
    """A job has a GPU, by one source; what the source lacks is empty."""

    gpu: NodeGpu
    job_id: str
    step_id: str = ""
    user: str = ""
    partition: str = ""
    run_id: str = ""
    proof: Proof = Proof.SLURM


def credible(claims: Iterable[GpuClaim]) -> list[GpuClaim]:
    """Return the claims without those that an environment alone makes and something else contradicts.

    Such a claim counts only for a GPU that no other job claims, and only for a job of which SLURM itself names no GPU:
    a variable can take no GPU from another job, and adds none to those of its own.
    """
    claims = list(claims)
    proven: dict[int, set[str]] = {}
    claimed: dict[int, set[str]] = {}
    for claim in claims:
        claimed.setdefault(claim.gpu.index, set()).add(claim.job_id)
        if claim.proof > Proof.ENVIRONMENT:
            proven.setdefault(claim.gpu.index, set()).add(claim.job_id)
    named = {claim.job_id for claim in claims if claim.proof is Proof.SLURM}

    def counts(claim: GpuClaim) -> bool:
        if claim.job_id in proven.get(claim.gpu.index, ()):
            return True
        return claim.job_id not in named and claimed[claim.gpu.index] == {claim.job_id}

    return [claim for claim in claims if counts(claim)]


def short_label(text: str) -> str:
    """Return a name cut to the length of a label."""
    return name_text(text, LABEL_BYTES)


def merge(claims: Iterable[GpuClaim]) -> list[GpuClaim]:
    """Return one claim for each job on each GPU; of two sources that have a label, the first counts.

    Several steps of a job leave `step_id` empty, unless all but one are SLURM's own (batch, extern, interactive): then
    two series of one GPU would break every join with it.
    """
    merged: dict[tuple[int, str], GpuClaim] = {}
    steps: dict[tuple[int, str], set[str]] = {}
    for claim in claims:
        key = (claim.gpu.index, claim.job_id)
        before = merged.setdefault(key, claim)
        merged[key] = replace(
            before,
            user=before.user or claim.user,
            partition=before.partition or claim.partition,
            run_id=before.run_id or claim.run_id,
        )
        if claim.step_id:
            steps.setdefault(key, set()).add(claim.step_id)
    return [replace(merged[key], step_id=_step(steps.get(key, set()))) for key in sorted(merged)]


def _step(steps: set[str]) -> str:
    numbered = {step for step in steps if step.isdigit()} or steps - {"extern"} or steps
    return next(iter(numbered)) if len(numbered) == 1 else ""


def claims_of_files(folder: Path, gpus: NodeGpus) -> tuple[list[GpuClaim], int]:
    """Return the claims in the files of SLURM's prolog, and how many files could not be used.

    The format is the one that dcgm-exporter reads: a file is named by the GPU's index, index and instance, or UUID.
    Each of its lines is a job's id, here followed by `user=`, `partition=` and `run_id=`. A file that is gone by the
    time it is opened belonged to a job that has ended.

    Raises:
        OSError: the folder cannot be listed.
    """
    claims: list[GpuClaim] = []
    unusable = 0
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry, _ in zip(entries, range(MAX_FILES), strict=False))
    for name in names:
        if name.startswith("."):
            continue
        gpu = _gpu(name, gpus)
        try:
            lines = prolog_lines(folder / name)
        except FileNotFoundError:
            continue
        except OSError:
            lines = None
        if gpu is None or lines is None:
            unusable += 1
            continue
        found = list(_claims(gpu, lines))
        claims += found
        unusable += len(found) < len(lines)
    return claims, unusable


def _gpu(name: str, gpus: NodeGpus) -> NodeGpu | None:
    match = _INDEX.fullmatch(name)
    return gpus.by_index(int(match[1])) if match else gpus.by_uuid(name)


def prolog_lines(path: Path) -> list[str]:
    """Return the lines of one of the prolog's files that are not blank; raises `OSError` if it cannot be read."""
    # Follow no link, and do not wait for a writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, MAX_FILE_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    return [line for line in text.splitlines() if line.strip()]


def _claims(gpu: NodeGpu, lines: list[str]) -> Iterator[GpuClaim]:
    for line in lines:
        job_id, *rest = line.split()
        if not JOB_ID.fullmatch(job_id):
            continue
        options = dict(item.partition("=")[::2] for item in rest)
        try:
            run_id = check_run_id(options.get("run_id", ""))
        except InvalidRunId:
            run_id = ""
        yield GpuClaim(
            gpu, job_id, "", short_label(options.get("user", "")), short_label(options.get("partition", "")), run_id
        )


def claims_of_groups(sysfs: Path, gpus: NodeGpus) -> tuple[list[GpuClaim], int]:
    """Return the claims in SLURM's device control groups, and how many groups could not be read.

    Version 1 of control groups alone has files with the devices: version 2 keeps them in the kernel.
    """
    claims: list[GpuClaim] = []
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
        claims += [GpuClaim(gpu, job_id, step_id) for gpu in found if gpu]
    return claims, unreadable


def _groups(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield path of devices.list, job and step of each step, or job without steps: slurm[_node]/uid_U/job_J/step_S."""
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
        return os.read(descriptor, MAX_DEVICES_BYTES)
    finally:
        os.close(descriptor)
