"""What SLURM's prolog says: a folder with one file for each GPU that is in use, as dcgm-exporter reads it too."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.gpu_jobs.claim import JOB_ID, Claim, word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu_jobs.gpus import Gpu, Gpus

MAX_BYTES = 4096
MAX_FILES = 1024
# 0 is a GPU; 0.3 a part of it, which is told of under the GPU.
_INDEX = re.compile(r"(\d{1,3})(?:\.\d{1,3})?")


def claims_of_files(folder: Path, gpus: Gpus) -> tuple[list[Claim], int]:
    """Return what the files say, and how many could not be used; raises `OSError` if the folder cannot be listed.

    A file is named by the GPU's index, index and part, or UUID. Each of its lines is a job's id, and may go on with
    `user=`, `partition=` and `run_id=`. One that is gone by the time it is opened belonged to a job that has ended.
    """
    claims: list[Claim] = []
    unusable = 0
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry, _ in zip(entries, range(MAX_FILES), strict=False))
    for name in names:
        if name.startswith("."):
            continue
        gpu = _gpu(name, gpus)
        try:
            lines = _lines(folder / name)
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


def _gpu(name: str, gpus: Gpus) -> Gpu | None:
    match = _INDEX.fullmatch(name)
    return gpus.by_index(int(match[1])) if match else gpus.by_uuid(name)


def _lines(path: Path) -> list[str]:
    # Neither a link to elsewhere nor a pipe that nobody writes to is waited for or followed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    return [line for line in text.splitlines() if line.strip()]


def _claims(gpu: Gpu, lines: list[str]) -> Iterator[Claim]:
    for line in lines:
        job_id, *rest = line.split()
        if not JOB_ID.fullmatch(job_id):
            continue
        said = dict(item.partition("=")[::2] for item in rest)
        try:
            run_id = check_run_id(said.get("run_id", ""))
        except InvalidRunId:
            run_id = ""
        yield Claim(gpu, job_id, "", word(said.get("user", "")), word(said.get("partition", "")), run_id)
