"""`run()`, and module-level functions with the signatures of the methods of `Run`.

They act on the run in progress in this process. Without one they do nothing, and log a warning before the first run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwarden import identity, log
from trainwarden.clients.s3_location import InvalidLocation, S3Location, records_location
from trainwarden.environment import read_environment
from trainwarden.identity import AttemptKey, InvalidAttemptKey, InvalidRunId
from trainwarden.record.attempt import begin_attempt
from trainwarden.record.folder import run_folder, runs_dir
from trainwarden.record.ownership import RunRefused, claim
from trainwarden.record.thresholds import InvalidThreshold
from trainwarden.record.thresholds import choose as choose_thresholds
from trainwarden.training.context import RunContext
from trainwarden.training.loop import whole
from trainwarden.training.resume import WAIT_SECONDS
from trainwarden.training.run import PhaseScope, Run
from trainwarden.training.sections import SectionScope
from trainwarden.training.usage_warnings import UsageWarnings

_MAX_TEXT = 200

logger = logging.getLogger("trainwarden")

_current: Run | None = None
# How many runs of this process that were given no id have succeeded, by the id that was made for the first.
_succeeded: Counter[str] = Counter()
# None once a run has begun: calls after its end and in forked processes are not warned of.
_warnings: UsageWarnings | None = UsageWarnings()

# Before the first line is logged.
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
    rank: int | None = None,
    world_size: int | None = None,
    otel: bool = False,
) -> Run:
    """Begin the record of a training run in this process; best used in a `with` statement.

    Args:
        run_id: name of the run, the same after a restart; `TRAINWARDEN_RUN_ID` if None, else made from the attempt key.
            After one that succeeded the next without an id is another, `…-2`; after one that failed it is the same.
        total_steps: the step after which the run is finished.
        model: name of the model, for display.
        framework: name of the framework, for display.
        method: such as pretraining or LoRA, for display.
        dir: the folder that holds one folder per run; see docs/contracts.md for the default.
        s3: `s3://bucket/prefix`, below which the record is copied to S3; see docs/s3.md.
        thresholds: `{"stale_seconds": s, "stall_seconds": {phase: s}}`, in seconds, each part optional.
        rank: of this process, where no launcher sets it in the environment, as with `torch.multiprocessing.spawn`.
        world_size: how many ranks there are; needed with `rank`.
        otel: report rank 0's progress and events to OpenTelemetry as well, through the providers that the program set
            up before; see docs/integrations.md.

    Raises:
        RunRefused: the run must not start: its folder belongs to a live run or cannot be written, or an argument or a
            variable is unusable. Nothing raises after that.
    """
    global _current, _warnings
    if _current is not None:
        _current.end_before_next()
    if _current is not None:
        raise RunRefused(
            f"a run is in progress in this process already: {_current.run_id}; leave its `with` block, or call "
            "trainwarden.finish(), before the next one"
        )
    if total_steps is not None and whole(total_steps) is None:
        raise RunRefused(f"total_steps={total_steps!r} is not a whole number, 0 or more")
    ranks = _number_of_ranks(rank, world_size)
    try:
        key = identity.current_attempt_key(ranks=ranks)
        if dir is not None and not isinstance(dir, (str, os.PathLike)):
            raise RunRefused(f"dir={dir!r} is no path of a folder")
        name = run_id or os.environ.get("TRAINWARDEN_RUN_ID") or _made_name(key)
        folder = run_folder(name, Path(runs_dir() if dir is None else dir).absolute())
        limits = choose_thresholds(thresholds)
        place = records_location(s3)
    except (InvalidRunId, InvalidAttemptKey, InvalidThreshold, InvalidLocation) as error:
        raise RunRefused(str(error)) from None
    except OSError as error:
        raise RunRefused(f"the run folder cannot be found, the working folder is gone: {error}") from None
    begun = _begin(
        RunContext(
            run_id=name,
            folder=folder,
            key=key,
            rank=identity.rank() if rank is None else rank,
            start=time.time(),
            beginning=None,
            world_size=ranks,
            total_steps=whole(total_steps),
            framework=_text(framework),
            model=_text(model),
            method=_text(method),
            thresholds=limits,
            environment=read_environment(),
            otel=bool(otel),
        ),
        place and place.below(name),
    )
    _current, _warnings = begun, None
    if begun.rank == 0 and _first_name(key) in _succeeded and name == _made_name(key):
        logger.warning(
            "%s: another run of this process without a run_id. Give each its own: after a restart that begins with "
            "another of them, one continues from the checkpoints of the other",
            name,
        )
    if begun.rank == 0 and (problem := identity.unnamed_start(key, ranks=ranks)):
        logger.warning("%s: %s", key, problem)
    return begun


def run_in_progress() -> Run | None:
    """Return the run that `run()` began in this process and that has not ended."""
    return _current


def step(
    step: int,
    *,
    loss: float | None = None,
    learning_rate: float | None = None,
    grad_norm: float | None = None,
    tokens: float | None = None,
    samples: float | None = None,
    **metrics: Any,
) -> None:
    """Report that the loop has completed a step; changes memory only.

    Each value is read once, in this call: one on a device is waited for, so pass a number where you have one.

    Args:
        step: number of the step; it continues across restarts.
        loss: scalar, any number or 0-d tensor; of this step.
        learning_rate: scalar; of this step.
        grad_norm: scalar; of this step, before clipping.
        tokens: scalar; how many tokens this report stands for, over all ranks.
        samples: scalar; how many samples this report stands for, over all ranks.
        metrics: other values: scalars and texts of up to 200 characters; `epoch` is recorded as the epoch.
    """
    if _current is not None:
        _current.step(
            step,
            loss=loss,
            learning_rate=learning_rate,
            grad_norm=grad_norm,
            tokens=tokens,
            samples=samples,
            **metrics,
        )
    else:
        _warn_before_run("step")


def phase(name: str) -> PhaseScope:
    """Enter a phase: init, compile, train, eval, checkpoint, load, idle or done.

    It takes effect at once. As a context manager it restores the previous phase at its end.

    Args:
        name: of the phase; an unknown one counts as train.
    """
    if _current is not None:
        return _current.phase(name)
    _warn_before_run("phase")
    return PhaseScope(None, None)


def section(name: str) -> SectionScope:
    """Begin a section of the step, such as data, forward, backward, optimizer or wait: its time is recorded.

    The one before ends. As a context manager it lets the one before go on at its end. Call it in the loop's thread.

    Args:
        name: of the section: letters, digits, `_`, `-` and `.`; a run has eight at most.
    """
    if _current is not None:
        return _current.section(name)
    _warn_before_run("section")
    return SectionScope(None)


def epoch(n: float) -> None:
    """Report that an epoch begins.

    Args:
        n: number of the epoch, whole or a fraction.
    """
    if _current is not None:
        _current.epoch(n)
    else:
        _warn_before_run("epoch")


def error(exc: BaseException, /, severity: str | None = None, category: str | None = None, **context: Any) -> None:
    """Record an exception that the training caught; the run goes on.

    Args:
        exc: the exception.
        severity: warning, error, critical or fatal; the taxonomy's for such a failure if None.
        category: one of the taxonomy's; the taxonomy's for such a failure if None.
        context: further data: numbers, texts, lists and dictionaries of them.
    """
    if _current is not None:
        _current.error(exc, severity, category, **context)
    else:
        _warn_before_run("error")


def note(event: str, /, **data: Any) -> None:
    """Write a line to `events.jsonl`; only rank 0 does.

    Args:
        event: name of the event, none of the library's own.
        data: numbers, texts, lists and dictionaries of them.
    """
    if _current is not None:
        _current.note(event, **data)
    else:
        _warn_before_run("note")


def checkpoint_saved(path: str | os.PathLike[str], step: int | None = None, *, verify: bool = False) -> None:
    """Record a checkpoint that is complete on disk, as `resume_checkpoint()` may return it after a restart.

    Args:
        path: of the checkpoint, a file or a folder.
        step: that it holds; the last reported one if None.
        verify: compute digests of its files meanwhile, in a process of its own: they prove its content later.
    """
    if _current is not None:
        _current.checkpoint_saved(path, step, verify=verify)
    else:
        _warn_before_run("checkpoint_saved")


def resume_checkpoint(*, trust: str | None = None, wait_seconds: float = WAIT_SECONDS) -> str | None:
    """Return the path of the checkpoint to resume from; None to start from the beginning.

    `TRAINWARDEN_RESUME_CHECKPOINT` is tried first, then the last checkpoints of the record, newest first. A
    complete one is preferred to one that cannot be verified; an incomplete one is never returned. Rank 0 chooses,
    once; every other rank waits for its choice, and for that checkpoint to be visible on its host.

    Args:
        trust: what counts as complete: `layout`, `complete` or `none`; see docs/checkpoints.md.
            `TRAINWARDEN_CHECKPOINT_TRUST` if None, else what the policy of the restart requests, else `layout`.
        wait_seconds: how long a rank other than 0 waits.

    Raises:
        RunRefused: on a rank other than 0 that cannot obey rank 0's choice.
    """
    if _current is not None:
        return _current.resume_checkpoint(trust=trust, wait_seconds=wait_seconds)
    _warn_before_run("resume_checkpoint")
    return None


def _number_of_ranks(rank: object, world_size: object) -> int | None:
    """Return how many ranks there are; raise `RunRefused` if `rank` cannot be one of them."""
    stated = identity.world_size()
    ranks = stated if world_size is None else world_size
    if world_size is not None or rank is not None:
        number = identity.rank() if rank is None else rank
        if not (type(ranks) is type(number) is int and 0 <= number < ranks):
            raise RunRefused(
                f"rank={rank!r}, world_size={world_size!r}: whole numbers with 0 <= rank < world_size expected"
            )
    return ranks if isinstance(ranks, int) else None


def finish() -> None:
    """End the run in progress as succeeded, where no `with` block does it: as in the last cell of a notebook."""
    if _current is not None:
        _current.finish()
    else:
        _warn_before_run("finish")


def _warn_before_run(call: str) -> None:
    if _warnings is not None:
        _warnings.warn("before run", f"{call}() before run(): nothing is recorded, as no run has begun in this process")


def _begin(context: RunContext, in_s3: S3Location | None) -> Run:
    ownership = startup = None
    try:
        context.folder.mkdir(parents=True, exist_ok=True)
        if in_s3 is not None:
            # Imported only here: it loads boto3.
            from trainwarden.s3.startup import S3Startup  # noqa: PLC0415

            startup = S3Startup(in_s3, context.folder, context.key, context.start, whole=context.rank == 0)
        if context.rank == 0:
            ownership = claim(context.folder, context.key)
            if startup:
                startup.restore()
            beginning = begin_attempt(context.folder, context.key, context.start)
            context = replace(context, beginning=beginning, start=beginning.this.start_time or context.start)
        begun = Run(context, ownership, _clear, startup.begin() if startup else None)
        begun.open()
    except BaseException as error:
        if startup:
            startup.abandon()
        if ownership:
            ownership.release()
        if isinstance(error, RunRefused) and (hint := _rank_hint(context)):
            raise RunRefused(f"{error}; {hint}") from None
        # ValueError: a path that no file can have.
        if not isinstance(error, (OSError, RuntimeError, ValueError)):
            raise
        # An OSError of the system holds the path and the reason already.
        is_complete = isinstance(error, OSError) and error.strerror
        raise RunRefused(f"run folder {context.folder} cannot be written: {error}") from None if is_complete else error
    return begun


def _made_name(key: AttemptKey) -> str:
    """Return the id of a run that was given none: a retry within the process belongs to the run that failed."""
    first = _first_name(key)
    return f"{first[:120]}-{_succeeded[first] + 1}" if first in _succeeded else first


def _first_name(key: AttemptKey) -> str:
    return f"{key.scheduler}-{key.job_id}".replace("+", "-")


def _rank_hint(context: RunContext) -> str | None:
    """Return what to pass where several processes that multiprocessing started all have rank 0."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None or multiprocessing.parent_process() is None or context.world_size is not None:
        return None
    return "where each process of multiprocessing is a rank, pass run(rank=…, world_size=…)"


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:_MAX_TEXT]


def _clear(ended: Run) -> None:
    global _current  # noqa: PLW0603  # the state of the module-level functions
    if _current is ended:
        _current = None
        key = AttemptKey.parse(ended.attempt_key)
        if ended.has_succeeded and ended.run_id == _made_name(key):
            _succeeded[_first_name(key)] += 1


def _abandon_in_child() -> None:
    if _current is not None:
        _current.abandon()
        _clear(_current)


os.register_at_fork(after_in_child=_abandon_in_child)
