"""The size of a checkpoint, found without waiting for a disk that does not answer."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from trainwarden.checkpoint import size_of
from trainwarden.record.files import Checkpoint

PATIENCE_SECONDS = 1.0

logger = logging.getLogger("trainwarden")


def measure(checkpoint: Checkpoint, late: Callable[[Checkpoint], None]) -> Checkpoint:
    """The checkpoint with its size, if that is found within a second.

    Else it is as it was, and `late` gets it with its size, from a thread, whenever that is found.
    """
    found: SimpleQueue[int | None] = SimpleQueue()
    gave_up = threading.Event()

    def look() -> None:
        size = size_of(Path(checkpoint.path))
        if size is None:
            logger.warning("checkpoint %r was reported as saved and cannot be found", checkpoint.path)
        found.put(size)
        if gave_up.is_set() and size is not None:
            late(replace(checkpoint, size_bytes=size))

    threading.Thread(target=look, name="trainwarden-size", daemon=True).start()
    try:
        return replace(checkpoint, size_bytes=found.get(timeout=PATIENCE_SECONDS))
    except Empty:
        gave_up.set()
    try:
        # It may have been found in this very moment.
        return replace(checkpoint, size_bytes=found.get_nowait())
    except Empty:
        return checkpoint
