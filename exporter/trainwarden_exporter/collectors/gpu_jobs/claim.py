"""That a GPU works for a job, as one of several sources says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.collectors.gpu_jobs.gpus import Gpu

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
WORD_BYTES = 64


@dataclass(frozen=True)
class Claim:
    """A job has a GPU; what the source does not say is empty."""

    gpu: Gpu
    job_id: str
    step_id: str = ""
    user: str = ""
    partition: str = ""
    run_id: str = ""


def word(text: str) -> str:
    """Return a name fit for a label."""
    return label_text(text, WORD_BYTES)


def merge(claims: Iterable[Claim]) -> list[Claim]:
    """Return one claim for each job on each GPU: what one source leaves out another may say; the first one counts.

    Several steps of a job leave `step_id` empty, unless all but one are SLURM's own (batch, extern, interactive): then
    two series of one GPU would break every join with it.
    """
    merged: dict[tuple[int, str], Claim] = {}
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
