"""The training of the canary: it counts steps, and breaks on schedule, in turn by a crash and a hang."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import trainwarden
from trainwarden.training.run import Run
from trainwarden_remediator.canary_job.canary_job import RUN_ID

# Of its phase train, where no variable of the job states another.
STALL_SECONDS = 120.0
# A checkpoint at least this often: each restart has one to resume from.
_STEPS_BETWEEN_CHECKPOINTS = 10
_KEPT_CHECKPOINTS = 3
_STATE = "state.json"


class BrokenOnSchedule(RuntimeError):
    """The canary has ended itself, so that the remediator heals it."""


def train(runs_dir: Path | None, every: float, step_seconds: float) -> NoReturn:
    """Train until the time to break has come: `every` seconds after its start. It never ends in success.

    `runs_dir` holds the run records; None: where the library finds it.

    Raises:
        BrokenOnSchedule: every other time. It hangs the other times: its steps end, its heartbeat goes on.
        RunRefused: another process writes the record.
    """
    if runs_dir is not None:
        os.environ["TRAINWARDEN_RUNS_DIR"] = str(runs_dir)
    os.environ.setdefault("TRAINWARDEN_STALL_SECONDS", f"{STALL_SECONDS:g}")
    with trainwarden.run(RUN_ID, framework="canary", rank=0, world_size=1) as run:
        checkpoints = run.folder / "checkpoints"
        step, breaks = _resume(run)
        due = time.monotonic() + every
        while True:
            step += 1
            run.step(step)
            if time.monotonic() >= due:
                _break(breaks, step)
            if step % _STEPS_BETWEEN_CHECKPOINTS == 1:
                _save(run, checkpoints, step, breaks)
            time.sleep(step_seconds)


def _break(breaks: int, step: int) -> None:
    if breaks % 2 == 0:
        raise BrokenOnSchedule(f"the canary breaks on schedule at step {step}")
    print(f"the canary hangs on schedule at step {step}", flush=True)
    while True:
        time.sleep(3600)


def _resume(run: Run) -> tuple[int, int]:
    """Return the step to continue after, and how often the canary was started from a checkpoint."""
    path = run.resume_checkpoint(trust="complete")
    if path is None:
        return 0, 0
    state = json.loads(Path(path, _STATE).read_text(encoding="utf-8"))
    return int(state["step"]), int(state["breaks"]) + 1


def _save(run: Run, checkpoints: Path, step: int, breaks: int) -> None:
    folder = checkpoints / f"step_{step}"
    with run.phase("checkpoint"):
        unfinished = checkpoints / f"step_{step}.tmp"
        unfinished.mkdir(parents=True, exist_ok=True)
        (unfinished / _STATE).write_text(json.dumps({"step": step, "breaks": breaks}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    run.checkpoint_saved(folder, step)
    for old in _older(checkpoints, step)[_KEPT_CHECKPOINTS:]:
        shutil.rmtree(checkpoints / f"step_{old}", ignore_errors=True)


def _older(checkpoints: Path, step: int) -> list[int]:
    """Return the steps of its checkpoints until a step, newest first."""
    found = []
    for path in checkpoints.iterdir():
        with suppress(ValueError):
            found.append(int(path.name.removeprefix("step_")))
    return sorted((each for each in found if each <= step), reverse=True)
