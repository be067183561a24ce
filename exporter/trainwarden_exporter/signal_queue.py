"""Waits for signals without blocking them, for a blocked mask is inherited by every child process."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


# To reload, and to release the devices.
REQUESTS = frozenset({signal.SIGHUP, signal.SIGUSR1})


class SignalQueue:
    """Queues signals while the block lasts, and those that were blocked until then; only the main thread may enter it.

    Python runs a handler only once the main thread returns from a wait, which a signal delivered to another thread does
    not end. So the number of each signal is written to a pipe, and the wait is for that.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)
        self._before: dict[signal.Signals, Any] = {}
        self._pending = b""

    def __enter__(self) -> SignalQueue:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float | None) -> signal.Signals | None:
        """Return the next signal; None if there was none in this time. Without a time, wait until there is one."""
        if not self._pending:
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            if not poll.poll(None if seconds is None else seconds * 1000):
                return None
            self._pending = os.read(self._read, 64)
        number, self._pending = self._pending[0], self._pending[1:]
        return signal.Signals(number)


def _ignore(*_: object) -> None:
    """Do nothing: the number is in the pipe already."""
