"""A training run in progress: what the training reports while it runs, and how its end is recorded."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trainwarden.checkpoint.paths import absolute
from trainwarden.checkpoint.verdict import TRUSTS
from trainwarden.record.ownership import Ownership, RunRefused
from trainwarden.record.progress import Checkpoint
from trainwarden.record.schema import shorten
from trainwarden.record.sentinels import requested_trust
from trainwarden.record.steps import StepCounter
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import known_phase
from trainwarden.training.context import RunContext
from trainwarden.training.crash_trace import CrashTrace
from trainwarden.training.digests import END_SECONDS, DigestWriter
from trainwarden.training.events import RunEvent, describe_error
from trainwarden.training.exit_hooks import ExitHooks
from trainwarden.training.loop import LoopState, whole
from trainwarden.training.notebook import NotebookCells
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, exception_outcome, infer_outcome, is_cancellation
from trainwarden.training.recorder import RecordThread
from trainwarden.training.resume import WAIT_SECONDS, Resumption
from trainwarden.training.sections import SectionScope
from trainwarden.training.stacks import StackAnswers
from trainwarden.training.usage_warnings import RESERVED_EVENTS, UsageWarnings, is_phase

if TYPE_CHECKING:
    from trainwarden.checkpoint.verdict import Trust
    from trainwarden.record.store import RecordCopy

_BEFORE_TRAINING = frozenset(("init", "compile", "load"))
_MAX_EVENT = 200
# How long the end of a run waits for a file system that does not respond.
_END_TIMEOUT_SECONDS = 10.0

logger = logging.getLogger("trainwarden")


class Run:
    """A training run in progress, as `run()` returns it. Its methods never raise into the loop.

    `resume_checkpoint()` alone may raise `RunRefused`, before the loop begins.
    """

    def __init__(
        self,
        context: RunContext,
        ownership: Ownership | None,
        on_end: Callable[[Run], None],
        copy: RecordCopy | None = None,
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._on_end = on_end
        self._warnings = UsageWarnings()
        self._loop = LoopState(context.beginning.steps if context.beginning else StepCounter())
        self._hooks = ExitHooks(self._end, lambda: self._loop.reports, lambda: self._loop.thread, lambda: self._is_done)
        self._signals = self._hooks.signals
        self._trace = CrashTrace(context.folder, context.rank, str(context.key))
        self._stacks = StackAnswers(context.folder, str(context.key), context.rank, self._standing)
        polls = (self._signals.check, self._trace.check, self._stacks.check)
        lost_to = ownership.lost_to if ownership else lambda: None
        self._recorder = RecordThread(context, self._loop, copy, polls, lost_to)
        self._cells = NotebookCells(self._end, self._recorder)
        self._resumption = Resumption(context, RecordStore(context.folder, copy))
        self._digests = DigestWriter(self._recorder.add_digests)
        self._active, self._abandoned = True, False
        # How the block was left, where the end of the process decides.
        self._left: AttemptOutcome | None = None
        self._status: str | None = None

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended, and well."""
        return self._status == "succeeded"

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._context.run_id

    @property
    def folder(self) -> Path:
        """The folder of the run's record. The training may keep its own files there, in subfolders of its own."""
        return self._context.folder

    @property
    def attempt_key(self) -> str:
        """The key of this attempt."""
        return str(self._context.key)

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._context.rank

    @property
    def write_errors(self) -> int:
        """How often the record could not be written."""
        return self._recorder.write_errors

    def step(
        self,
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
        if not self._active:
            return
        try:
            if self._recorder.phase in _BEFORE_TRAINING:
                self._recorder.enter_phase("train")
            ignored = self._loop.report(
                step,
                loss=loss,
                learning_rate=learning_rate,
                grad_norm=grad_norm,
                tokens=tokens,
                samples=samples,
                metrics=metrics,
            )
            if ignored:
                given = {"loss": loss, "learning_rate": learning_rate, "grad_norm": grad_norm}
                self._warnings.warn_of_values(ignored, {**given, "step": step, "tokens": tokens, "samples": samples})
            if self._signals.replaced:
                self._signals.reinstall()
            if self._recorder.gpu_memory.due:
                self._recorder.gpu_memory.sample()
        except Exception:  # nothing ever raises into the loop
            logger.debug("step %r could not be recorded", step, exc_info=True)

    def expect(self, total_steps: int) -> None:
        """Set the step after which the run is finished, where `run()` could not be given it."""
        if not self._active:
            return
        number = whole(total_steps)
        if number is None:
            self._warnings.warn("expect", "expect(%s): no whole number, 0 or more: it is ignored", total_steps)
        else:
            self._context = replace(self._context, total_steps=number)
            self._recorder.expect(number)

    def phase(self, name: str) -> PhaseScope:
        """Enter a phase: init, compile, train, eval, checkpoint, load, idle or done.

        It takes effect at once. As a context manager it restores the previous phase at its end.

        Args:
            name: of the phase; an unknown one counts as train.
        """
        if self._active and not is_phase(name):
            self._warnings.warn_of_phase(name)
        if not self._active or not isinstance(name, str):
            return PhaseScope(None, None)
        return PhaseScope(self._recorder, known_phase(name))

    def section(self, name: str) -> SectionScope:
        """Begin a section of the step, such as data, forward, backward, optimizer or wait: its time is recorded.

        The one before ends. As a context manager it lets the one before go on at its end. Call it in the loop's thread.

        Args:
            name: of the section: letters, digits, `_`, `-` and `.`; a run has eight at most.
        """
        sections = self._loop.sections
        if not self._active:
            return SectionScope(None)
        if not sections.may_enter(name):
            self._warnings.warn("section", "section(%s): no name, or one of more than eight: it is not recorded", name)
            return SectionScope(None)
        return SectionScope(sections, sections.enter(name))

    def epoch(self, n: float) -> None:
        """Report that an epoch begins.

        Args:
            n: number of the epoch, whole or a fraction.
        """
        if not self._active:
            return
        try:
            number = self._loop.enter_epoch(n)
            if number is None:
                self._warnings.warn("epoch", "epoch(%s): no number: it is not recorded", n)
            else:
                self._recorder.add_event(RunEvent(time.time(), "epoch_started", {"epoch": number}))
        except Exception:  # nothing ever raises into the loop
            logger.debug("epoch %r could not be recorded", n, exc_info=True)

    def error(
        self, exc: BaseException, /, severity: str | None = None, category: str | None = None, **context: Any
    ) -> None:
        """Record an exception that the training caught; the run goes on.

        Args:
            exc: the exception.
            severity: warning, error, critical or fatal; the taxonomy's for such a failure if None.
            category: one of the taxonomy's; the taxonomy's for such a failure if None.
            context: further data: numbers, texts, lists and dictionaries of them.
        """
        if not self._active:
            return
        try:
            self._recorder.add_error(describe_error(exc, severity, category, context))
        except Exception:  # nothing ever raises into the loop
            logger.debug("an error could not be recorded", exc_info=True)

    def note(self, event: str, /, **data: Any) -> None:
        """Write a line to `events.jsonl`; only rank 0 does.

        Args:
            event: name of the event, none of the library's own.
            data: numbers, texts, lists and dictionaries of them.
        """
        if not self._active or self._context.beginning is None:
            return
        try:
            name = shorten(str(event), _MAX_EVENT)
            if name in RESERVED_EVENTS:
                self._warnings.warn("note", "note(%s): an event of the library's own: it is not written", name)
            else:
                self._recorder.add_event(RunEvent(time.time(), name, data))
        except Exception:  # nothing ever raises into the loop
            logger.debug("a note could not be recorded", exc_info=True)

    def checkpoint_saved(self, path: str | os.PathLike[str], step: int | None = None, *, verify: bool = False) -> None:
        """Record a checkpoint that is complete on disk, as `resume_checkpoint()` may return it after a restart.

        Args:
            path: of the checkpoint, a file or a folder.
            step: that it holds; the last reported one if None.
            verify: compute digests of its files meanwhile, in a process of its own: they prove its content later.
        """
        if not self._active or self._context.beginning is None:
            return
        try:
            self._loop.interrupt()
            number = self._loop.step if step is None else whole(step)
            self._recorder.add_checkpoint(Checkpoint(absolute(path), number, time.time()))
            if verify:
                self._digests.write(absolute(path))
        except Exception:  # nothing ever raises into the loop
            logger.warning("checkpoint %r could not be recorded", path, exc_info=True)

    def resume_checkpoint(self, *, trust: str | None = None, wait_seconds: float = WAIT_SECONDS) -> str | None:
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
        try:
            return self._resumption.checkpoint(self._trust(trust), wait_seconds)
        except RunRefused:
            raise
        except Exception as error:  # nothing else ever raises into the loop
            if self.rank > 0:
                raise RunRefused(f"rank 0's choice of a checkpoint cannot be obeyed: {error!r}") from error
            logger.warning("no checkpoint could be looked for", exc_info=True)
            return None

    def _trust(self, given: str | None) -> Trust:
        for trust in (given, os.environ.get("TRAINWARDEN_CHECKPOINT_TRUST"), requested_trust(self.folder)):
            if trust in TRUSTS:
                return trust
            if trust:
                self._warnings.warn("trust", "trust=%s: expected one of layout, complete or none; it is ignored", trust)
        return TRUSTS[0]

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is not None and (is_cancellation(exc) or self._hooks.is_caught_perhaps(exc)):
            # The end of the process decides the outcome; until then no step is expected.
            self._left = exception_outcome(exc)
            self.phase("idle")
        else:
            self._end(SUCCEEDED if exc is None else exception_outcome(exc))

    def finish(self) -> None:
        """End the run as succeeded, where no `with` block does it: as in the last cell of a notebook."""
        if self._active:
            self._end(SUCCEEDED)

    def end_before_next(self) -> None:
        """Record the end of a loop that was left, or whose cell failed, when the process begins another run."""
        left = self._left or (self._cells.failure and exception_outcome(self._cells.failure))
        if left:
            self._end(left)

    def open(self) -> None:
        """Write the record for the first time; `run()` has done it.

        Raises:
            OSError, RuntimeError: the folder cannot be written, or no more threads can be started.
        """
        self._recorder.open()
        try:
            self._trace.open()
            self._hooks.install()
            self._cells.install()
        except BaseException as error:
            # An interrupt. The thread exists by now, and would keep the run's heartbeat going.
            self._end(exception_outcome(error))
            raise

    def _end(self, outcome: AttemptOutcome) -> None:
        """Record the end. The first outcome counts; later calls only wait until it is written."""
        if self._abandoned:
            return
        self._active = False
        if self._left and (outcome.unknown or (outcome == SUCCEEDED and self._left.status == "cancelled")):
            outcome = self._left
        step, high = self._loop.step, self._loop.snapshot().high_water
        total = self._context.total_steps
        outcome = infer_outcome(outcome, self._hooks.received, step, total, time.time(), high_water=high)
        self._status = outcome.status
        if self._recorder.finish(outcome, _END_TIMEOUT_SECONDS):
            self._trace.close()
        else:
            logger.error("no time to record in %s that the run %s at step %s", self.folder, outcome.status, step)
        # A run that fails or is stopped has no time to lose.
        self._digests.close(END_SECONDS if outcome.status == "succeeded" else 0.0)
        self._hooks.remove()
        self._cells.remove()
        if self._ownership:
            self._ownership.release()
        self._on_end(self)

    def _standing(self) -> tuple[int | None, str, int | None]:
        return self._loop.step, self._recorder.phase, self._loop.thread

    @property
    def _is_done(self) -> bool:
        step, total = self._loop.step, self._context.total_steps
        return step is not None and total is not None and step >= total

    def abandon(self) -> None:
        """Stop all writing in a forked child: only the parent writes the record."""
        self._abandoned, self._active = True, False
        self._trace.abandon()
        self._hooks.remove()
        self._cells.remove()


class PhaseScope:
    """What `phase()` returns: as a context manager it restores the previous phase."""

    def __init__(self, recorder: RecordThread | None, name: str | None) -> None:
        self._recorder = recorder
        self._name = name
        self._previous = recorder.phase if recorder else None
        if recorder and name:
            recorder.enter_phase(name)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        # A phase that was entered meanwhile, such as by the first step, stays.
        if self._recorder and self._previous and self._recorder.phase == self._name:
            self._recorder.enter_phase(self._previous)
