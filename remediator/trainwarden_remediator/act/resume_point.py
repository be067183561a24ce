"""The checkpoint that a restarted run will resume from, looked for before the present attempt is ended."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from trainwarden.checkpoint import verify
from trainwarden.checkpoint.paths import is_remote
from trainwarden.checkpoint.verdict import TRUSTS, Trust
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.resume import read_choice
from trainwarden.record.superseded import overwritten
from trainwarden_remediator.incidents.incident import clean

COMPLETE, STOP, UNKNOWN = "complete", "stop", "unknown"
_MAX_TEXT = 300


@dataclass(frozen=True)
class ResumePoint:
    """The newest complete checkpoint of a run, or why there is none.

    `verdict` is complete, stop (there are checkpoints, and none of them is proven: a person has to decide) or unknown.
    `step` and `path` are of the checkpoint where it is complete.
    """

    verdict: str
    text: str
    step: int | None = None
    path: str | None = None


NOT_LOOKED_FOR = ResumePoint(UNKNOWN, "")


def resume_point(record: Path, attempt_key: str, trust: str | None, seconds: float) -> ResumePoint:
    """Verify the checkpoints that the record of a run names, newest first, as the run does when it resumes.

    Args:
        record: folder of the run.
        attempt_key: of the attempt that is to be ended.
        trust: what the policy takes for a complete checkpoint; what the run itself does if None.
        seconds: for all of it.
    """
    deadline = time.monotonic() + seconds
    choice, progress = read_choice(record), read_progress(record)
    if choice is None or choice.attempt_key != attempt_key:
        return ResumePoint(UNKNOWN, "the run chooses its checkpoint itself")
    known = progress.known_checkpoints() if isinstance(progress, Progress) else ()
    if not known:
        return ResumePoint(UNKNOWN, "no checkpoint is recorded")
    if record.stat().st_uid != os.geteuid() or any(is_remote(each.path) for each in known):
        return ResumePoint(UNKNOWN, "its checkpoints are another user's, or in S3: it verifies them when it resumes")
    wanted: Trust = next((each for each in TRUSTS if each == (trust or choice.trust)), TRUSTS[0])
    rejected: list[str] = []
    for checkpoint in known:
        left = deadline - time.monotonic()
        if left <= 0:
            return ResumePoint(UNKNOWN, f"its checkpoints could not be verified in {seconds:g} s")
        name = f"step {checkpoint.step}, {clean(checkpoint.path, 200)}"
        if rival := overwritten(record, checkpoint):
            rejected.append(f"{name}: overwritten by attempt {rival.attempt}")
            continue
        verdict = verify(checkpoint.path, checkpoint.size_bytes, seconds=left, trust=wanted)
        if verdict.answer == "complete":
            older = f"; left out: {clean('; '.join(rejected), _MAX_TEXT)}" if rejected else ""
            text = f"the newest complete checkpoint is of {name}{older}"
            return ResumePoint(COMPLETE, text, checkpoint.step, checkpoint.path)
        if verdict.answer == "unverifiable" and any("gave up" in line for line in verdict.evidence):
            return ResumePoint(UNKNOWN, f"its checkpoints could not be verified in {seconds:g} s")
        rejected.append(f"{name}: {verdict}")
    aside = shlex.quote(clean(known[0].path, 200))
    return ResumePoint(
        STOP,
        f"no checkpoint is proven complete: {clean('; '.join(rejected), _MAX_TEXT)}; to move a damaged one out of the "
        f"way: trainwarden checkpoints set-aside {aside}",
    )
