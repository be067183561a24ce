"""The thread that writes the run record, so that the training never waits for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

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
from trainwarden.training.writer import PROGRESS_SECONDS, Writer

if TYPE_CHECKING:
    from trainwarden.record.store import RecordCopy

# A loop that changes its phase all the time must not keep the disk busy.
_PAUSE_SECONDS = 0.05
_LEAVING_SECONDS = 1.0


class Recorder:
    """What the training says goes in here, and comes out in the run's folder.

    All input and output after `open` happens in one thread. The others only leave it a message: the queues and the
    locks that they use for that are safe even in a signal handler that interrupts another use of them.

    Args:
        subject: whose record it is.
        loop: what the training loop said.
        copy: gets every file that is written.
        look: called by the thread twice a second.
    """

    def __init__(
        self,
        subject: RunContext,
        loop: LoopState,
        copy: RecordCopy | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._look = look
        self._requests: SimpleQueue[AttemptOutcome | Checkpoint | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trainwarden", daemon=True)
        self._sizer = CheckpointSizer(on_late=self._requests.put)
        self._finished = threading.Lock()
        self._finished.acquire()
        self._deadline: float | None = None
        # One tuple, so that a change is seen whole or not at all.
        self._phase = ("init", time.time())
        self.gpu_memory = GpuMemory()
        self._samples_gpu = subject.beginning is not None
        self._event_log = EventLog(subject)
        self._writer = Writer(
            subject,
            loop,
            self._event_log,
            RecordStore(subject.folder, copy),
            gpu_memory=self.gpu_memory,
            phase=lambda: self._phase,
        )

    def open(self) -> None:
        """Write the record for the first time and start the thread.

        Raises:
            OSError, RuntimeError: the folder cannot be written, or there can be no more threads.
        """
        if self._samples_gpu:
            self.gpu_memory.check_before_start()
        self._writer.open()
        self._sizer.open()
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
        """Change the phase, and have that written at once."""
        if name != self._phase[0]:
            self._phase = (name, time.time())
            self._requests.put(None)

    def expect(self, total_steps: int) -> None:
        """Have another total recorded from now on."""
        self._writer.subject = replace(self._writer.subject, total_steps=total_steps)

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Have a checkpoint recorded; its size need not be known."""
        self._requests.put(checkpoint)

    def note(self, note: RunEvent) -> None:
        """Have a line written to `events.jsonl`; nothing but for rank 0. Touches memory only.

        What is noted while the disk does not take it is kept up to a bound; beyond that it is counted and left out.
        """
        self._event_log.add(note)

    def caught(self, caught: CaughtError) -> None:
        """Have a caught error written to this rank's journal of errors; as `note` in all else."""
        self._event_log.add_error(caught)

    def finish(self, ending: AttemptOutcome, timeout: float) -> bool:
        """Have the last word written; False if that took longer than `timeout` seconds, or cannot happen any more."""
        if self._deadline is None:
            self._deadline = time.monotonic() + timeout
        self._requests.put(ending)
        if not self._finished.acquire(timeout=timeout if self._thread.is_alive() else 0):
            return False
        self._finished.release()
        # A thread on its way out when the interpreter ends is stopped by force, for which there may be no memory.
        self._thread.join(_LEAVING_SECONDS)
        return True

    def _run(self) -> None:
        writer = self._writer
        writer.guarded(_load_what_an_end_needs)
        while True:
            requests = self._wait()
            for checkpoint in (request for request in requests if isinstance(request, Checkpoint)):
                writer.guarded(partial(self._take_checkpoint, checkpoint))
            ending = next((request for request in requests if isinstance(request, AttemptOutcome)), None)
            if ending is not None:
                writer.guarded(partial(writer.end, ending, self._deadline or 0.0))
                self._sizer.close()
                self._finished.release()
                return
            if self._samples_gpu:
                self.gpu_memory.arm()
            writer.guarded(self._look)
            writer.guarded(writer.write_what_is_due)
            time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> list[AttemptOutcome | Checkpoint | None]:
        requests: list[AttemptOutcome | Checkpoint | None] = []
        try:
            requests.append(self._requests.get(timeout=PROGRESS_SECONDS - _PAUSE_SECONDS))
            while True:
                requests.append(self._requests.get_nowait())
        except Empty:
            return requests

    def _take_checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.size_bytes is None:
            self._writer.add_checkpoint(self._sizer.measure(checkpoint))
        else:
            self._writer.correct_checkpoint(checkpoint)


def _load_what_an_end_needs() -> None:
    """A process that ends for want of memory has none left to load a module with."""
    import traceback  # noqa: PLC0415

    from_iso(to_iso(0.0))
    traceback.format_exception(ValueError, ValueError("for its imports"), None)
