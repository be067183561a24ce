"""The size of a checkpoint, found without waiting for a disk that does not answer."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from trainwarden.checkpoint import size_of
from trainwarden.record.files import Checkpoint

PATIENCE_SECONDS = 1.0
LEAVING_SECONDS = 0.2

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class _Question:
    checkpoint: Checkpoint
    answer: "SimpleQueue[int | None]" = field(default_factory=SimpleQueue)
    gave_up: threading.Event = field(default_factory=threading.Event)


class Measurer:
    """Looks in a thread of its own, which exists from the start: a process without memory can begin none.

    Args:
        late: gets a checkpoint with its size, from that thread, when it was found too late for `measure()`.
    """

    def __init__(self, late: Callable[[Checkpoint], None]) -> None:
        self._late = late
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trainwarden-size", daemon=True)

    def open(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: there can be no more threads.
        """
        self._thread.start()

    def close(self) -> None:
        """Let the thread end once it has answered, and see it off if that is soon."""
        self._questions.put(None)
        self._thread.join(LEAVING_SECONDS)

    def measure(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with its size, if that is found within a second; else as it was."""
        question = _Question(checkpoint)
        self._questions.put(question)
        try:
            return replace(checkpoint, size_bytes=question.answer.get(timeout=PATIENCE_SECONDS))
        except Empty:
            question.gave_up.set()
        try:
            # It may have been found in this very moment.
            return replace(checkpoint, size_bytes=question.answer.get_nowait())
        except Empty:
            return checkpoint

    def _run(self) -> None:
        while question := self._questions.get():
            try:
                self._look(question)
            except Exception as error:  # noqa: BLE001, PERF203  # the next checkpoint wants to be measured all the same
                logger.warning("the size of checkpoint %r cannot be found: %s", question.checkpoint.path, error)

    def _look(self, question: _Question) -> None:
        checkpoint = question.checkpoint
        size = size_of(checkpoint.path)
        if size is None:
            logger.warning("checkpoint %r was reported as saved and cannot be found", checkpoint.path)
        question.answer.put(size)
        if question.gave_up.is_set() and size is not None:
            self._late(replace(checkpoint, size_bytes=size))
