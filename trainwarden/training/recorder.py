"""The thread that writes the run record, so that the training never waits for a disk."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from trainwarden.record.files import Checkpoint, Metadata, read_metadata
from trainwarden.record.folder import CHECKPOINTED, ERRORS, EVENTS, METADATA, PROGRESS, RANKS, write_json
from trainwarden.record.lines import encode_line
from trainwarden.record.sentinels import attempt_number, record_completion, record_failure
from trainwarden.training.copies import Copy
from trainwarden.training.endings import Ending, settle
from trainwarden.training.journal import Journal
from trainwarden.training.loop import Loop
from trainwarden.training.measurement import Measurer
from trainwarden.training.requests import Caught, Note
from trainwarden.training.subject import State, Subject
from trainwarden.training.throughput import Throughput

PROGRESS_SECONDS = 0.5
LIVENESS_SECONDS = 5.0
# A loop that changes its phase all the time must not keep the disk busy.
_PAUSE_SECONDS = 0.05
_LAST_TRIES = 3
_KEPT_CHECKPOINTS = 3
_NEVER = float("-inf")

logger = logging.getLogger("trainwarden")


class Recorder:
    """Writes what the loop said when it moved, liveness every 5 s, and everything once more at the end.

    All input and output after `open` happens in one thread. The others only leave it a message: the queue and the lock
    that they use for that are safe even in a signal handler that interrupts another use of them.
    """

    def __init__(self, subject: Subject, loop: Loop, copy: Copy | None = None) -> None:
        self._copy = copy
        self._subject = subject
        self._loop = loop
        self._requests: SimpleQueue[Ending | Checkpoint | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trainwarden", daemon=True)
        self._measurer = Measurer(late=self._requests.put)
        self._finished = threading.Lock()
        self._finished.acquire()
        # One tuple, so that a change is seen whole or not at all.
        self._phase = ("init", time.time())
        self._ended: Ending | None = None
        self._end_time: float | None = None
        self._throughput = Throughput()
        beginning = subject.beginning
        self._checkpoints = beginning.checkpoints if beginning else ()
        self._checkpoints_saved = beginning.checkpoints_saved if beginning else 0
        self._written_state: State | None = None
        self._written_reports = 0
        self._progress_time = self._beat_time = _NEVER
        self._checkpoint_is_new = False
        self._superseded = False
        self._events = Journal(subject.folder / EVENTS)
        mine = ERRORS if subject.beginning else f"{RANKS}/{subject.rank}.{ERRORS}"
        self._errors = Journal(subject.folder / mine)
        self.write_errors = 0

    def open(self) -> None:
        """Write the record for the first time and start the thread.

        Raises:
            OSError, RuntimeError: the folder cannot be written, or there can be no more threads.
        """
        (self._subject.folder / RANKS).mkdir(exist_ok=True)
        self._write_beat()
        self._measurer.open()
        self._thread.start()

    @property
    def phase(self) -> str:
        """The phase that the run is in."""
        return self._phase[0]

    def enter_phase(self, name: str) -> None:
        """Change the phase, and have that written at once."""
        if name != self._phase[0]:
            self._phase = (name, time.time())
            self._requests.put(None)

    def expect(self, total_steps: int) -> None:
        """Have another total recorded from now on."""
        self._subject = replace(self._subject, total_steps=total_steps)

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Have a checkpoint recorded; its size need not be known."""
        self._requests.put(checkpoint)

    def note(self, note: Note) -> None:
        """Have a line written to `events.jsonl`; nothing but for rank 0. Touches memory only, and never raises."""
        if self._subject.beginning is not None:
            self._events.add(self._subject.event(note))

    def caught(self, caught: Caught) -> None:
        """Have a caught error written to this rank's journal of errors. Touches memory only, and never raises."""
        self._errors.add(encode_line(self._subject.error(caught)))

    def finish(self, ending: Ending, timeout: float) -> bool:
        """Have the last word written; False if that took longer than `timeout` seconds, or cannot happen any more."""
        self._requests.put(ending)
        if not self._finished.acquire(timeout=timeout if self._thread.is_alive() else 0):
            return False
        self._finished.release()
        return True

    def _run(self) -> None:
        _load_what_an_end_needs()
        while True:
            requests = self._wait()
            for checkpoint in (request for request in requests if isinstance(request, Checkpoint)):
                self._guarded(partial(self._take_checkpoint, checkpoint))
            ending = next((request for request in requests if isinstance(request, Ending)), None)
            if ending is not None:
                self._guarded(partial(self._end, ending))
                self._measurer.close()
                self._finished.release()
                return
            self._guarded(self._write_what_is_due)
            time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> list[Ending | Checkpoint | None]:
        requests: list[Ending | Checkpoint | None] = []
        try:
            requests.append(self._requests.get(timeout=PROGRESS_SECONDS - _PAUSE_SECONDS))
            while True:
                requests.append(self._requests.get_nowait())
        except Empty:
            return requests

    def _guarded(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except Exception as error:  # noqa: BLE001  # the thread outlives whatever goes wrong in it
            self.write_errors += 1
            level = logging.WARNING if self.write_errors == 1 else logging.DEBUG
            logger.log(level, "the run record in %s could not be written: %s", self._subject.folder, error)
            return False
        return True

    def _state(self) -> State:
        phase, since = self._phase
        ended = self._ended
        if ended is None:
            return State(phase, since, first_step=self._loop.first_step)
        if ended.status == "succeeded":
            phase, since = "done", self._end_time or since
        return State(phase, since, ended.status, ended.reason, self._end_time, self._loop.first_step)

    def _write_what_is_due(self) -> None:
        self._events.flush()
        self._errors.flush()
        now = time.monotonic()
        if self._state() != self._written_state or now - self._beat_time >= LIVENESS_SECONDS:
            self._write_beat()
        if now - self._progress_time >= PROGRESS_SECONDS:
            self._write_progress()

    def _write_beat(self) -> None:
        if self._has_a_successor():
            return
        subject, state, now = self._subject, self._state(), time.time()
        beat = subject.rank_beat(state, self._loop.step, now)
        self._write(subject.folder / RANKS / f"{subject.rank}.json", beat)
        if subject.beginning is not None:
            metadata = subject.metadata(subject.beginning, state, now, self.write_errors)
            self._write(subject.folder / METADATA, metadata, durable=state.end_time is not None)
        self._written_state, self._beat_time = state, time.monotonic()

    def _write_progress(self) -> None:
        beginning, view = self._subject.beginning, self._loop.view()
        moved = view.reports != self._written_reports or self._checkpoint_is_new
        if beginning is None or not moved or self._has_a_successor():
            return
        rates = self._throughput.add(view.last_updated or 0.0, view.tokens, view.samples)
        document = self._subject.progress(beginning, view, rates, self._checkpoints, self._checkpoints_saved)
        # After a loss of power the newest checkpoint must still be known, whatever became of later reports.
        self._write(self._subject.folder / PROGRESS, document, durable=self._checkpoint_is_new)
        if self._checkpoint_is_new:
            self._write(self._subject.folder / CHECKPOINTED, document, durable=True)
        self._written_reports, self._checkpoint_is_new = view.reports, False
        self._progress_time = time.monotonic()

    def _write(self, path: Path, document: dict[str, Any], *, durable: bool = False) -> None:
        try:
            write_json(path, document, durable=durable)
        except FileNotFoundError:
            # Somebody removed the folder under the run.
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, document, durable=durable)

    def _has_a_successor(self) -> bool:
        """Whether a newer attempt owns the record: then nothing more is ours to say."""
        metadata = read_metadata(self._subject.folder)
        if isinstance(metadata, Metadata) and metadata.attempt_key != str(self._subject.key):
            ours = attempt_number(metadata, str(self._subject.key))
            self._superseded = ours is not None and metadata.attempt is not None and metadata.attempt > ours
        return self._superseded

    def _take_checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.size_bytes is None:
            taken = self._measurer.measure(checkpoint)
            others = tuple(one for one in self._checkpoints if one.path != checkpoint.path)
            self._checkpoints = (taken, *others)[:_KEPT_CHECKPOINTS]
            self._checkpoints_saved += 1
        else:
            same = (checkpoint.path, checkpoint.time)
            self._checkpoints = tuple(checkpoint if (one.path, one.time) == same else one for one in self._checkpoints)
        self._checkpoint_is_new = True
        self._progress_time = _NEVER

    def _end(self, seen: Ending) -> None:
        subject = self._subject
        self._end_time = time.time()
        ending = self._ended = settle(seen, subject.folder, str(subject.key), subject.rank, subject.start)
        if ending.status == "failed" and ending.failure is not None:
            self._insist(partial(self._write_error, ending))
        self._insist(self._write_progress)
        self._insist(self._write_beat)
        if ending.status == "succeeded" and subject.beginning is not None and not self._superseded:
            self._insist(lambda: record_completion(subject.folder, key=str(subject.key), step=self._loop.step))

    def _insist(self, write: Callable[[], None]) -> None:
        # The last word has no next time.
        for attempt in range(_LAST_TRIES):
            if self._guarded(write):
                return
            time.sleep(0.1 * 2**attempt)

    def _write_error(self, ending: Ending) -> None:
        if ending.failure is None:
            return
        record_failure(
            self._subject.folder,
            key=str(self._subject.key),
            failure=ending.failure,
            message=ending.reason or "",
            rank=self._subject.rank,
            exception_type=ending.exception_type,
            traceback=ending.traceback,
            exit_code=ending.exit_code,
        )


def _load_what_an_end_needs() -> None:
    """A process that ends for want of memory has none left to load a module with."""
    import traceback  # noqa: PLC0415

    traceback.format_exception(ValueError, ValueError("for its imports"), None)
