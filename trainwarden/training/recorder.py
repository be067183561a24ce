"""The thread that writes the run record, so that the training never waits for a disk."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from trainwarden.log import LogRelay
from trainwarden.record.clock import from_iso, to_iso
from trainwarden.record.progress import Checkpoint
from trainwarden.record.store import RecordStore
from trainwarden.training.checkpoints import CheckpointSizer
from trainwarden.training.context import RunContext
from trainwarden.training.event_log import EventLog
from trainwarden.training.events import CaughtError, RunEvent
from trainwarden.training.gpu_memory import GpuMemory
from trainwarden.training.loop import LoopState
from trainwarden.training.outcome import AttemptOutcome
from trainwarden.training.progress_publisher import PROGRESS_SECONDS
from trainwarden.training.writer import RecordWriter

if TYPE_CHECKING:
    from trainwarden.record.ownership import Owner
    from trainwarden.record.store import RecordCopy
    from trainwarden.training.telemetry import Telemetry

# The least time between two rounds of writing, for a loop that changes its phase all the time.
_PAUSE_SECONDS = 0.05
_JOIN_SECONDS = 1.0
_END_TRIES = 3

# Held while a thread of the library imports. A fork waits for that: a module whose import is cut off can never be
# imported in the child.
importing = threading.RLock()
os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)


class RecordThread:
    """Passes what the training reports to the thread that writes it into the run's folder.

    All input and output after `open` happens in that thread. Other threads only leave requests and wake it by a queue.
    The queue and the locks are safe even in a signal handler that interrupts another use of them. Whatever is raised in
    the thread, such as a MemoryError, costs one round and never the thread.

    Args:
        context: of the run.
        loop: the reported state of the training loop.
        copy: receives every file that is written.
        polls: called by the thread twice a second, each.
        lost_to: returns the other owner of the record, if this process has lost it; called by the thread.
    """

    def __init__(
        self,
        context: RunContext,
        loop: LoopState,
        copy: RecordCopy | None = None,
        polls: tuple[Callable[[], None], ...] = (),
        lost_to: Callable[[], Owner | None] = lambda: None,
    ) -> None:
        self._polls = polls
        self._loop = loop
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._checkpoints: deque[Checkpoint] = deque()
        self._verified: deque[tuple[str, float, float]] = deque()
        self._outcome: AttemptOutcome | None = None
        self._log_relay = LogRelay()
        self._thread = threading.Thread(target=self._run, name="trainwarden", daemon=True)
        self._sizer = CheckpointSizer(on_late=self.add_checkpoint)
        self._finished = threading.Lock()
        self._finished.acquire()
        self._is_finished = False
        self._deadline: float | None = None
        # One tuple, so that the name and its time change together.
        self._phase = ("init", time.time())
        self._has_imported = False
        self.gpu_memory = GpuMemory(is_recorded=context.beginning is not None)
        self._telemetry = _telemetry(context, loop)
        self._event_log = EventLog(context, self._telemetry.add_event if self._telemetry else None)
        self._writer = RecordWriter(
            context,
            loop,
            self._event_log,
            RecordStore(context.folder, copy),
            gpu_memory=self.gpu_memory,
            phase=lambda: self._phase,
            lost_to=lost_to,
        )

    def open(self) -> None:
        """Write the record for the first time and start the thread.

        Raises:
            OSError, RuntimeError: the folder cannot be written, or no more threads can be started.
        """
        self.gpu_memory.check_before_start()
        self._writer.open()
        self._sizer.open()
        self._log_relay.open()
        self._thread.start()

    @property
    def phase(self) -> str:
        """The phase that the run is in."""
        return self._phase[0]

    @property
    def write_errors(self) -> int:
        """How often the record could not be written."""
        return self._writer.write_errors

    def enter_phase(self, name: str) -> None:
        """Change the phase, and wake the thread to write it."""
        if name != self._phase[0]:
            self._loop.interrupt()
            self._phase = (name, time.time())
            self._wake.put(None)

    def expect(self, total_steps: int) -> None:
        """Set the total number of steps."""
        self._writer.expect(total_steps)

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record a checkpoint; its size is measured if unknown."""
        self._checkpoints.append(checkpoint)
        self._wake.put(None)

    def add_digests(self, path: str, result: Mapping[str, Any]) -> None:
        """Record how the digests of a checkpoint ended, as `DigestWriter` reports it."""
        now = time.time()
        if "problem" not in result:
            self._verified.append((path, now - result["seconds"], now))
        self.add_event(RunEvent(now, "checkpoint_digests", {"path": path, **result}))
        self._wake.put(None)

    def add_event(self, event: RunEvent) -> None:
        """Add a line to `events.jsonl`, on rank 0 only; changes memory only.

        Lines that cannot be written are kept up to a bound; beyond it they are counted and dropped.
        """
        self._event_log.add(event)

    def add_error(self, error: CaughtError) -> None:
        """Add a line to this rank's journal of errors; changes memory only, as `add_event`."""
        self._event_log.add_error(error)

    def finish(self, outcome: AttemptOutcome, timeout: float) -> bool:
        """Write the end of the run; False if that took longer than `timeout` seconds, or if the thread is dead."""
        if self._deadline is None:
            self._deadline = time.monotonic() + timeout
        if self._outcome is None:
            self._outcome = outcome
        self._wake.put(None)
        # A signal handler may interrupt this between acquiring and releasing, and come here again.
        if not self._is_finished and self._finished.acquire(timeout=timeout if self._thread.is_alive() else 0):
            self._finished.release()
        if self._is_finished:
            # The interpreter stops running threads by force at its end, which needs memory that may be gone.
            self._thread.join(_JOIN_SECONDS)
        self._log_relay.close()
        return self._is_finished

    def _run(self) -> None:
        with self._log_relay.relaying():
            self._write_until_the_end()

    def _write_until_the_end(self) -> None:
        is_over = False
        while not is_over:
            try:
                is_over = self._next_round()
            except BaseException:  # noqa: BLE001, PERF203  # a MemoryError even of what handles another one
                with contextlib.suppress(BaseException):
                    self._writer.write_errors += 1

    def _next_round(self) -> bool:
        """Write what there is to write, and return whether that was the end of the run."""
        writer = self._writer
        if not self._has_imported:
            self._has_imported = True
            writer.guarded(_import_for_the_end)
        time.sleep(_PAUSE_SECONDS)
        self._wait()
        # Read first: a checkpoint that was saved before the end is in the queue by now.
        outcome = self._outcome
        while self._checkpoints:
            writer.guarded(partial(self._write_checkpoint, self._checkpoints.popleft()))
        while self._verified:
            writer.guarded(partial(writer.verified_checkpoint, *self._verified.popleft()))
        if outcome is not None:
            self._write_end(outcome)
            self._is_finished = True
            self._finished.release()
            return True
        self.gpu_memory.arm()
        for poll in self._polls:
            writer.guarded(poll)
        writer.guarded(writer.write_what_is_due)
        return False

    def _write_end(self, outcome: AttemptOutcome) -> None:
        end = partial(self._writer.end, outcome, self._deadline or 0.0)
        for _ in range(_END_TRIES):
            if self._writer.guarded(end):
                break
        if self._telemetry is not None:
            self._telemetry.end(self._writer.outcome or outcome)
        self._sizer.close()

    def _wait(self) -> None:
        try:
            self._wake.get(timeout=PROGRESS_SECONDS - _PAUSE_SECONDS)
            while True:
                self._wake.get_nowait()
        except Empty:
            pass

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.size_bytes is None:
            self._writer.add_checkpoint(self._sizer.measure(checkpoint))
        else:
            self._writer.correct_checkpoint(checkpoint)


def _import_for_the_end() -> None:
    """Import what the end and `error()` need: the training must not wait for it, nor can it be had without memory."""
    with importing:
        import traceback  # noqa: PLC0415

        from trainwarden.failures import patterns  # noqa: F401, PLC0415

        from_iso(to_iso(0.0))
        traceback.format_exception(ValueError, ValueError("for its imports"), None)


def _telemetry(context: RunContext, loop: LoopState) -> Telemetry | None:
    if not context.otel or context.beginning is None:
        return None
    from trainwarden.training.telemetry import Telemetry  # noqa: PLC0415  # few use it

    return Telemetry(context, loop.snapshot)
