"""Deadlines for work in this process.

There are two ways to bound a call, and each has one place:

- A call that may hang in the kernel, on a file system, a driver or a device that never answers, cannot be cancelled.
  `call_with_deadline` makes it in a thread that is left behind. The exporter makes such calls all the time and bounds
  the number of threads that hang: `sampling/blocking_io.py` for many files, `sampling/sampler.py` for collectors.
  `collectors/gpu/opener.py` opens a driver once for all threads that wait for it.
  Where even that is too much, as with a driver that may take its process down, a child process makes them:
  `sampling/subprocess_collector.py`.
- Everything else ends by itself: work in steps checks a `Deadline`; commands run through `clients/process.py` and
  requests through `clients/http.py`, which end what they started at the deadline.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

_Result = TypeVar("_Result")


class DeadlineExceeded(Exception):
    """The time allowed is used up."""


class Deadline:
    """A point in time, by the monotonic clock.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left; 0 if none."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise `DeadlineExceeded` if no time is left."""
        if time.monotonic() >= self._end:
            raise DeadlineExceeded(f"gave up after {self.seconds:g} s")


def call_with_deadline(work: Callable[[], _Result], seconds: float, *, thread_name: str) -> _Result:
    """Return the result of `work`, or raise its exception.

    It runs in a daemon thread, which stays behind if a system call never returns: it delays neither the caller nor the
    end of the process. If no thread can be started, for want of memory, `work` runs in this one, without a deadline.

    Raises:
        DeadlineExceeded: it did not end within `seconds`. It may still end, and take effect, later.
    """
    results: SimpleQueue[tuple[_Result | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:  # noqa: BLE001  # raised below, in the calling thread
            results.put((None, error))

    thread = threading.Thread(target=run, name=thread_name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return work()
    try:
        result, error = results.get(timeout=seconds)
    except Empty:
        raise DeadlineExceeded(f"gave up after {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only where `work` returns None
