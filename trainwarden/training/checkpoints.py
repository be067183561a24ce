"""The checkpoints that a run has saved, and their sizes, measured without waiting for a hanging disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from trainwarden.checkpoint import size_of
from trainwarden.record.progress import Checkpoint

_KEPT = 3

SIZE_TIMEOUT_SECONDS = 1.0
_JOIN_SECONDS = 0.2

logger = logging.getLogger("trainwarden")


class SavedCheckpoints:
    """The last three checkpoints, newest first, and how many were saved in all attempts."""

    def __init__(self, latest: tuple[Checkpoint, ...] = (), count: int = 0) -> None:
        self.latest = latest
        self.count = count

    def add(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint that was just saved."""
        others = tuple(one for one in self.latest if one.path != checkpoint.path)
        self.latest = (checkpoint, *others)[:_KEPT]
        self.count += 1

    def correct(self, checkpoint: Checkpoint) -> None:
        """Set the size of the entry with the same path and time."""
        same = (checkpoint.path, checkpoint.time)
        self.latest = tuple(
            one.replace(size_bytes=checkpoint.size_bytes) if (one.path, one.time) == same else one
            for one in self.latest
        )

    def verified(self, path: str, begun: float, ended: float) -> None:
        """Set that a checkpoint was read as a whole between two times, Unix seconds, unless it was saved anew since."""
        self.latest = tuple(
            one.replace(verified_time=ended) if one.path == path and (one.time or 0.0) <= begun else one
            for one in self.latest
        )


@dataclass(frozen=True)
class _SizeRequest:
    checkpoint: Checkpoint
    size: SimpleQueue[int | None] = field(default_factory=SimpleQueue)
    timed_out: threading.Event = field(default_factory=threading.Event)


class CheckpointSizer:
    """Measures checkpoints in a thread of its own, because a hanging file system must not stop the record's thread.

    The thread starts with the run: a process that is out of memory can start none.

    Args:
        on_late: called in that thread with the sized checkpoint, when the size was found after `measure()` timed out.
    """

    def __init__(self, on_late: Callable[[Checkpoint], None]) -> None:
        self._on_late = on_late
        self._requests: SimpleQueue[_SizeRequest | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trainwarden-size", daemon=True)

    def open(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: no more threads can be started.
        """
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after the requests that wait, and join it if that is quick."""
        self._requests.put(None)
        self._thread.join(_JOIN_SECONDS)

    def measure(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with its size, or unchanged if the size is not found within a second."""
        request = _SizeRequest(checkpoint)
        self._requests.put(request)
        try:
            return checkpoint.replace(size_bytes=request.size.get(timeout=SIZE_TIMEOUT_SECONDS))
        except Empty:
            request.timed_out.set()
        try:
            # The size may have arrived between the timeout and the flag.
            return checkpoint.replace(size_bytes=request.size.get_nowait())
        except Empty:
            return checkpoint

    def _run(self) -> None:
        while request := self._requests.get():
            try:
                self._measure(request)
            except Exception as error:  # noqa: BLE001, PERF203  # one failure must not stop the thread
                logger.warning("the size of checkpoint %r cannot be found: %s", request.checkpoint.path, error)

    def _measure(self, request: _SizeRequest) -> None:
        checkpoint = request.checkpoint
        size = size_of(checkpoint.path)
        if size is None:
            logger.warning("checkpoint %r was reported as saved and cannot be found", checkpoint.path)
        request.size.put(size)
        if request.timed_out.is_set() and size is not None:
            self._on_late(checkpoint.replace(size_bytes=size))
