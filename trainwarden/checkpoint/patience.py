"""Time that a look at a checkpoint may take: a file system that does not answer must not hold its caller."""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

_Result = TypeVar("_Result")
# What looks at the clock itself ends in time, with more to say.
_GRACE_SECONDS = 1.0


class OutOfTime(Exception):
    """The time allowed is used up."""


class Deadline:
    """So many seconds from now on, by a clock that never jumps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left; 0 if none."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Go on only if there is time left.

        Raises:
            OutOfTime: there is none.
        """
        if time.monotonic() >= self._end:
            raise OutOfTime(f"gave up after {self.seconds:g} s")


def within(seconds: float, work: Callable[[], _Result], failed: Callable[[str], _Result]) -> _Result:
    """The result of `work`, done in a thread of its own; of `failed` if it raises or takes longer than `seconds`.

    The thread stays behind where a system call never returns; it holds up neither its caller nor the process's end.
    """
    answer: SimpleQueue[_Result] = SimpleQueue()

    def run() -> None:
        try:
            answer.put(work())
        except Exception as error:  # noqa: BLE001  # a checkpoint that confuses us must not stop its training
            answer.put(failed(f"it could not be judged: {error!r}"))

    thread = threading.Thread(target=run, name="trainwarden-checkpoint", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a process without memory can begin none
        run()
    try:
        return answer.get(timeout=seconds + _GRACE_SECONDS)
    except Empty:
        return failed(f"gave up after {seconds:g} s: the file system does not answer")
