"""`run()`, and the run in progress, for which the module's functions speak."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwarden import identity, log
from trainwarden.environment import read_environment
from trainwarden.identity import InvalidAttemptKey, InvalidRunId
from trainwarden.record.folder import run_folder, runs_dir
from trainwarden.record.ownership import RunRefused, claim
from trainwarden.record.thresholds import InvalidThreshold
from trainwarden.record.thresholds import choose as choose_thresholds
from trainwarden.s3.location import InvalidLocation, Location
from trainwarden.s3.location import choose as choose_place
from trainwarden.training.attempt import begin
from trainwarden.training.loop import whole
from trainwarden.training.mistakes import Mistakes
from trainwarden.training.phase_scope import PhaseScope
from trainwarden.training.run import Run
from trainwarden.training.subject import Subject

_MAX_TEXT = 200

_current: Run | None = None
# None once a run has begun: calls after its end, and in processes forked from it, are no mistakes.
_mistakes: Mistakes | None = Mistakes()

# Before anything here has something to say.
log.protect()


def run(
    run_id: str | None = None,
    *,
    total_steps: int | None = None,
    model: str | None = None,
    framework: str | None = None,
    method: str | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002  # the name that users know
    s3: str | None = None,
    thresholds: Mapping[str, Any] | None = None,
) -> Run:
    """Begin the record of this process's part in a training run; best used in a `with` statement.

    Args:
        run_id: of the work, the same after a restart; `TRAINWARDEN_RUN_ID` if None, else made from the attempt's key.
        total_steps: the step after which the run is finished.
        model: what is trained.
        framework: what it is trained with.
        method: how it is trained.
        dir: the folder that holds one folder per run; see ARCHITECTURE.md for the default.
        s3: `s3://bucket/prefix`, below which the record is copied to S3; docs/s3.md tells more.
        thresholds: `{"stale_seconds": s, "stall_seconds": {phase: s}}`, each part optional.

    Raises:
        RunRefused: the run must not start: its folder belongs to a live run or cannot be written, or an argument or a
            variable is unusable. Nothing raises after that.
    """
    global _current, _mistakes
    if _current is not None:
        _current.end_if_given_up()
    if _current is not None:
        raise RunRefused(f"a run is in progress in this process already: {_current.run_id}")
    if total_steps is not None and whole(total_steps) is None:
        raise RunRefused(f"total_steps={total_steps!r} is not a whole number, 0 or more")
    try:
        key = identity.current_attempt_key()
        if dir is not None and not isinstance(dir, (str, os.PathLike)):
            raise RunRefused(f"dir={dir!r} is no path of a folder")
        name = run_id or os.environ.get("TRAINWARDEN_RUN_ID") or f"{key.scheduler}-{key.job_id}".replace("+", "-")
        folder = run_folder(name, Path(runs_dir() if dir is None else dir).absolute())
        limits = choose_thresholds(thresholds)
        place = choose_place(s3)
    except (InvalidRunId, InvalidAttemptKey, InvalidThreshold, InvalidLocation) as error:
        raise RunRefused(str(error)) from None
    except OSError as error:
        raise RunRefused(f"the run folder cannot be told, the working folder is gone: {error}") from None
    made = _make(
        Subject(
            run_id=name,
            folder=folder,
            key=key,
            rank=identity.rank(),
            start=time.time(),
            beginning=None,
            world_size=identity.world_size(),
            total_steps=whole(total_steps),
            framework=_text(framework),
            model=_text(model),
            method=_text(method),
            thresholds=limits,
            environment=read_environment(),
        ),
        place and place.below(name),
    )
    _current, _mistakes = made, None
    return made


def run_in_progress() -> Run | None:
    """The run that the module's functions speak for."""
    return _current


def step(step: int, **values: Any) -> None:
    """`Run.step` of the run in progress; nothing where there is none."""
    if _current is not None:
        _current.step(step, **values)
    else:
        _too_early("step")


def phase(name: str) -> PhaseScope:
    """`Run.phase` of the run in progress; nothing where there is none."""
    if _current is not None:
        return _current.phase(name)
    _too_early("phase")
    return PhaseScope(None, None)


def epoch(n: float) -> None:
    """`Run.epoch` of the run in progress; nothing where there is none."""
    if _current is not None:
        _current.epoch(n)
    else:
        _too_early("epoch")


def error(exc: BaseException, /, severity: str | None = None, category: str | None = None, **context: Any) -> None:
    """`Run.error` of the run in progress; nothing where there is none."""
    if _current is not None:
        _current.error(exc, severity, category, **context)
    else:
        _too_early("error")


def note(event: str, /, **data: Any) -> None:
    """`Run.note` of the run in progress; nothing where there is none."""
    if _current is not None:
        _current.note(event, **data)
    else:
        _too_early("note")


def checkpoint_saved(path: str | os.PathLike[str], step: int | None = None) -> None:
    """`Run.checkpoint_saved` of the run in progress; nothing where there is none."""
    if _current is not None:
        _current.checkpoint_saved(path, step)
    else:
        _too_early("checkpoint_saved")


def resume_checkpoint() -> str | None:
    """`Run.resume_checkpoint` of the run in progress; None where there is none."""
    if _current is not None:
        return _current.resume_checkpoint()
    _too_early("resume_checkpoint")
    return None


def _too_early(call: str) -> None:
    if _mistakes is not None:
        _mistakes.tell("before run", f"{call}() before run(): nothing is recorded, as no run has begun in this process")


def _make(subject: Subject, in_s3: Location | None) -> Run:
    ownership = opening = None
    try:
        subject.folder.mkdir(parents=True, exist_ok=True)
        if in_s3 is not None:
            # It loads much that a record in a folder alone does not need.
            from trainwarden.s3.opening import Opening  # noqa: PLC0415

            opening = Opening(in_s3, subject.folder, subject.key, subject.start, whole=subject.rank == 0)
        if subject.rank == 0:
            ownership = claim(subject.folder, subject.key)
            if opening:
                opening.fill()
            beginning = begin(subject.folder, subject.key, subject.start)
            subject = replace(subject, beginning=beginning, start=beginning.this.start_time or subject.start)
        made = Run(subject, ownership, _forget, opening.begin() if opening else None)
        made.open()
    except BaseException as error:
        if opening:
            opening.abandon()
        if ownership:
            ownership.release()
        # The last one is of a name that no file can have.
        if not isinstance(error, (OSError, RuntimeError, ValueError)):
            raise
        # The system's own words say it all, with the path that they are about.
        is_told = isinstance(error, OSError) and error.strerror
        raise RunRefused(f"run folder {subject.folder} cannot be written: {error}") from None if is_told else error
    return made


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:_MAX_TEXT]


def _forget(ended: Run) -> None:
    global _current  # noqa: PLW0603  # the module's functions speak for the run in progress
    if _current is ended:
        _current = None


def _leave_to_the_parent() -> None:
    if _current is not None:
        _current.abandon()
        _forget(_current)


os.register_at_fork(after_in_child=_leave_to_the_parent)
