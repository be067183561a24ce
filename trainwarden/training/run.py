"""What a training says of itself while it runs, and how that ends."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from trainwarden.checkpoint import choose as choose_checkpoint
from trainwarden.checkpoint.place import absolute
from trainwarden.record.files import Checkpoint
from trainwarden.record.ownership import Ownership
from trainwarden.record.sentinels import shorten
from trainwarden.record.thresholds import known_phase
from trainwarden.training import endings
from trainwarden.training.attempt import last_progress, saved_checkpoints
from trainwarden.training.caught import describe
from trainwarden.training.copies import Copy
from trainwarden.training.endings import EndHooks, Ending, judge
from trainwarden.training.loop import Carried, Loop, whole
from trainwarden.training.mistakes import RESERVED_EVENTS, Mistakes, is_phase
from trainwarden.training.phase_scope import PhaseScope
from trainwarden.training.recorder import Recorder
from trainwarden.training.requests import Note
from trainwarden.training.subject import Subject
from trainwarden.training.trace import CrashTrace

_BEFORE_TRAINING = frozenset(("init", "compile", "load"))
_MAX_EVENT = 200
# How long an end waits for a file system that does not answer.
_LAST_WORD_SECONDS = 10.0

logger = logging.getLogger("trainwarden")


class Run:
    """A training run in progress, as `run()` returns it. None of its methods ever raises into the loop."""

    def __init__(
        self,
        subject: Subject,
        ownership: Ownership | None,
        on_end: "Callable[[Run], None]",
        copy: Copy | None = None,
    ) -> None:
        self._subject = subject
        self._ownership = ownership
        self._on_end = on_end
        self._mistakes = Mistakes()
        self._loop = Loop(subject.beginning.carried if subject.beginning else Carried())
        self._hooks = EndHooks(self._end, lambda: self._loop.reports, lambda: self._loop.thread)
        self._signals = self._hooks.signals
        self._recorder = Recorder(subject, self._loop, copy, look=self._signals.look)
        self._trace = CrashTrace(subject.folder, subject.rank, str(subject.key))
        self._active, self._abandoned = True, False
        self._given_up: Ending | None = None

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._subject.run_id

    @property
    def folder(self) -> Path:
        """Where the run's record is; the training may keep its own things there, in folders of its own."""
        return self._subject.folder

    @property
    def attempt_key(self) -> str:
        """The key of this attempt."""
        return str(self._subject.key)

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._subject.rank

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
        """Say that the loop has done step number `step`; a memory operation.

        Every value is taken here and now, once: one on a device is waited for, so pass a number where you have one.

        Args:
            step: counts over the whole run, across restarts.
            loss: of the step.
            learning_rate: of the step.
            grad_norm: of the step, before clipping.
            tokens: how many this report stands for, over all ranks.
            samples: how many this report stands for, over all ranks.
            metrics: whatever else is worth keeping: numbers and short texts; `epoch` has a place of its own.
        """
        if not self._active:
            return
        try:
            if self._recorder.phase in _BEFORE_TRAINING:
                self._recorder.enter_phase("train")
            wrong = self._loop.report(
                step,
                loss=loss,
                learning_rate=learning_rate,
                grad_norm=grad_norm,
                tokens=tokens,
                samples=samples,
                metrics=metrics,
            )
            if wrong:
                given = {"loss": loss, "learning_rate": learning_rate, "grad_norm": grad_norm}
                self._mistakes.in_report(wrong, {**given, "step": step, "tokens": tokens, "samples": samples})
            if self._signals.covered:
                self._signals.cover()
            if self._recorder.gpu_memory.due:
                self._recorder.gpu_memory.sample()
        except Exception:  # nothing ever raises into the loop
            logger.debug("step %r could not be recorded", step, exc_info=True)

    def expect(self, total_steps: int) -> None:
        """Say after which step the run is finished, where `run()` could not know."""
        if not self._active:
            return
        number = whole(total_steps)
        if number is None:
            self._mistakes.tell("expect", "expect(%s): no whole number, 0 or more: it is passed over", total_steps)
        else:
            self._subject = replace(self._subject, total_steps=number)
            self._recorder.expect(number)

    def phase(self, name: str) -> PhaseScope:
        """Say what the run does now: init, compile, train, eval, checkpoint, load, idle or done.

        It takes effect at once. Used as a context manager it brings the phase before back.
        """
        if self._active and not is_phase(name):
            self._mistakes.in_phase(name)
        if not self._active or not isinstance(name, str):
            return PhaseScope(None, None)
        return PhaseScope(self._recorder, known_phase(name))

    def epoch(self, n: float) -> None:
        """Say that epoch number `n` begins; as a metric of `step()` it may also be a fraction."""
        if not self._active:
            return
        try:
            number = self._loop.enter_epoch(n)
            if number is None:
                self._mistakes.tell("epoch", "epoch(%s): no number: it is not recorded", n)
            else:
                self._recorder.note(Note(time.time(), "epoch_started", {"epoch": number}))
        except Exception:  # nothing ever raises into the loop
            logger.debug("epoch %r could not be recorded", n, exc_info=True)

    def error(
        self, exc: BaseException, /, severity: str | None = None, category: str | None = None, **context: Any
    ) -> None:
        """Say that the training caught `exc` and goes on; it ends nothing.

        Args:
            exc: what was caught.
            severity: warning, error, critical or fatal; the taxonomy's for such a failure if None.
            category: one of the taxonomy's; that of such a failure if None.
            context: whatever helps to understand it: numbers, texts, lists and dictionaries of them.
        """
        if not self._active:
            return
        try:
            self._recorder.caught(describe(exc, severity, category, context))
        except Exception:  # nothing ever raises into the loop
            logger.debug("an error could not be recorded", exc_info=True)

    def note(self, event: str, /, **data: Any) -> None:
        """Have a line in `events.jsonl`, by rank 0: numbers, texts, lists. No name of the library's own events."""
        if not self._active or self._subject.beginning is None:
            return
        try:
            name = shorten(str(event), _MAX_EVENT)
            if name in RESERVED_EVENTS:
                self._mistakes.tell("note", "note(%s): an event of the library's own: it is not written", name)
            else:
                self._recorder.note(Note(time.time(), name, data))
        except Exception:  # nothing ever raises into the loop
            logger.debug("a note could not be recorded", exc_info=True)

    def checkpoint_saved(self, path: "str | os.PathLike[str]", step: int | None = None) -> None:
        """Say that a checkpoint, a file or a folder, is on disk with all its parts.

        Args:
            path: of the checkpoint.
            step: that it holds; the last reported one if None.
        """
        if not self._active or self._subject.beginning is None:
            return
        try:
            number = self._loop.step if step is None else whole(step)
            self._recorder.add_checkpoint(Checkpoint(absolute(path), number, time.time()))
        except Exception:  # nothing ever raises into the loop
            logger.warning("checkpoint %r could not be recorded", path, exc_info=True)

    def resume_checkpoint(self) -> str | None:
        """The path of the checkpoint to resume from; None to start from the beginning.

        What `TRAINWARDEN_RESUME_CHECKPOINT` names comes first, then the last ones of the record, newest first. A
        complete one is preferred to one that cannot be verified; an incomplete one is never returned.
        """
        try:
            return self._resume_checkpoint()
        except Exception:  # nothing ever raises into the loop
            logger.warning("no checkpoint could be looked for", exc_info=True)
            return None

    def _resume_checkpoint(self) -> str | None:
        known = saved_checkpoints(last_progress(self.folder))
        named = os.environ.get("TRAINWARDEN_RESUME_CHECKPOINT")
        if named:
            path = absolute(named)
            first = next((one for one in known if one.path == path), Checkpoint(path))
            chosen, passed_over = choose_checkpoint([first])
            if chosen is None:
                chosen, more = choose_checkpoint(known)
                passed_over += more
        else:
            chosen, passed_over = choose_checkpoint(known)
        for line in passed_over:
            logger.warning("%s", line)
        if passed_over and chosen is None:
            logger.error("none of the %d known checkpoints can be resumed from", len(passed_over))
        return chosen.path if chosen else None

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is not None and endings.is_given_up(exc):
            # Nothing is due any more, and how the process goes on or ends says what this was.
            self._given_up = endings.of_exception(exc)
            self.phase("idle")
        else:
            self._end(endings.SUCCEEDED if exc is None else endings.of_exception(exc))

    def end_if_given_up(self) -> None:
        """Have the last word about a loop that was left from outside, in a process that goes on."""
        if self._given_up:
            self._end(self._given_up)

    def open(self) -> None:
        """Write the first word; `run()` has done it.

        Raises:
            OSError, RuntimeError: the folder cannot be written, or there can be no more threads.
        """
        self._recorder.open()
        try:
            self._trace.open()
            self._hooks.install()
        except BaseException as error:
            # An interrupt; there is a thread by now that would say for ever that the run lives.
            self._end(endings.of_exception(error))
            raise

    def _end(self, ending: Ending) -> None:
        """Have the last word written. The first ending counts; whoever comes later only waits for it."""
        if self._abandoned:
            return
        self._active = False
        if self._given_up and ending == endings.SUCCEEDED:
            ending = self._given_up
        step, high = self._loop.step, self._loop.view().high_water
        ending = judge(ending, self._hooks.received, step, self._subject.total_steps, time.time(), high_water=high)
        if self._recorder.finish(ending, _LAST_WORD_SECONDS):
            self._trace.close()
        else:
            logger.error("no time to record in %s that the run %s at step %s", self.folder, ending.status, step)
        self._hooks.remove()
        if self._ownership:
            self._ownership.release()
        self._on_end(self)

    def abandon(self) -> None:
        """In a forked child: this is the parent's run, and the parent's alone to write about."""
        self._abandoned, self._active = True, False
        self._trace.abandon()
        self._hooks.remove()
