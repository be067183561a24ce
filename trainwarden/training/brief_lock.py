"""A lock for numbers in memory that a signal handler cannot turn into a deadlock."""

from __future__ import annotations

import contextlib
import threading

# No code holds it for longer, except a frame that a signal handler has interrupted.
_LONGEST_SECONDS = 0.05


class BriefLock:
    """A reentrant lock that is waited for only briefly; then the block is entered without it.

    It is held only while numbers change. A signal handler that records the end of the run waits for the thread that
    writes the record; that thread must not wait for a lock which the interrupted frame holds.

    Args:
        lock: to wait for; a new one if None.
    """

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self._lock = lock or threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire(timeout=_LONGEST_SECONDS)

    def __exit__(self, *_: object) -> None:
        # Raised where the lock was not acquired.
        with contextlib.suppress(RuntimeError):
            self._lock.release()
