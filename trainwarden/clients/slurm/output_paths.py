"""Where a batch job's output is, as sbatch resolves the names that it was given."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwarden.clients.slurm.jobs import SlurmJob

_TOKEN = re.compile(r"%(\d*)([A-Za-z%])")
_MAX_WIDTH = 10
_NOWHERE = "/dev/null"


def output_paths(job: SlurmJob) -> tuple[str, ...]:
    """Return the files of standard output and standard error, absolute; one that is both stands once.

    Empty where the job has none, as an interactive one, or they cannot be resolved yet, as before it has a node.
    """
    default = "slurm-%A_%a.out" if job.array_task_id else "slurm-%j.out"
    named = (job.stdout or (default if job.work_dir else ""), job.stderr)
    found = (output_path(name, job) for name in named if name)
    return tuple(dict.fromkeys(os.path.normpath(path) for path in found if path and path != _NOWHERE))


def output_path(name: str, job: SlurmJob) -> str | None:
    """Return the absolute path that a name of `sbatch --output` means; None where it cannot be resolved.

    A name with a backslash is used as it is, as sbatch does.
    """
    values = {
        "A": job.array_job_id or job.job_id,
        "a": job.array_task_id or "4294967294",
        "b": str(int(job.array_task_id) % 10) if job.array_task_id else "4",
        "j": job.job_id,
        "J": job.job_id,
        "N": job.batch_host.partition(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user,
        "x": job.name,
        "%": "%",
    }
    resolved = name.replace("\\", "")
    if "\\" not in name:
        used = {letter for _, letter in _TOKEN.findall(name)}
        if any(values.get(letter) == "" for letter in used):
            return None
        resolved = _TOKEN.sub(lambda match: _padded(values.get(match[2], match[0]), match[1]), name)
    if "\0" in resolved or not (resolved.startswith("/") or job.work_dir.startswith("/")):
        return None
    return str(PurePosixPath(job.work_dir, resolved))


def _padded(value: str, width: str) -> str:
    return value.zfill(min(int(width), _MAX_WIDTH)) if width and value.isdigit() else value
