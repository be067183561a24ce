"""The wrapped command as a process: its group, and the signals that are passed on to it.

In the foreground of a terminal it stays in the process group of `exec`: Ctrl-C and Ctrl-Z reach it, `exec` and the
script around it as they would without `exec`, and only a signal that a process sends to `exec` is passed on. Anywhere
else it has a group of its own, and each signal to `exec`, or to its group, is sent to that group once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

_FORWARDED = frozenset(
    (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
    )
)
_PR_SET_PDEATHSIG = 1
_TICK_SECONDS = 1.0


class Signals:
    """The signals for the command, blocked until they can be passed on; `restore` unblocks them."""

    def __init__(self) -> None:
        self.shares_terminal = _in_foreground()
        wanted = _FORWARDED if self.shares_terminal else _FORWARDED | {signal.SIGTSTP}
        # A signal that this process was started to ignore, the command ignores as well.
        self._forwarded = frozenset(number for number in wanted if signal.getsignal(number) != signal.SIG_IGN)
        # Where a parent ignores SIGCHLD, it cannot wait for the end of a child.
        self._previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, self._forwarded | {signal.SIGCHLD})

    def next(self, timeout: float) -> int | None:
        """Return the next signal to pass on; None when a child changed its state, or after `timeout` seconds."""
        received = signal.sigtimedwait(self._forwarded | {signal.SIGCHLD}, timeout)
        if received is None or received.si_signo == signal.SIGCHLD:
            return None
        # The terminal has sent it to the command as well.
        return None if self.shares_terminal and received.si_code > 0 else received.si_signo

    def restore(self) -> None:
        """Restore handlers and mask; signals for the command that came after its end are dropped."""
        while signal.sigtimedwait(self._forwarded, 0) is not None:
            pass
        signal.signal(signal.SIGCHLD, self._previous)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


class Child:
    """A running command.

    If this process dies, the kernel sends the command SIGHUP, as a terminal does that closes.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], outputs: Sequence[int], signals: Signals
    ) -> None:
        self._signals = signals
        self.stopped = False
        mask, prctl, parent = signals.mask_before, _prctl(), os.getpid()

        def prepare() -> None:
            if not signals.shares_terminal:
                os.setpgid(0, 0)
            if prctl is not None:
                prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
                if os.getppid() != parent:
                    os.kill(os.getpid(), signal.SIGHUP)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        self._process = subprocess.Popen(
            list(command),
            env=environment,
            stdout=outputs[0],
            stderr=outputs[1],
            preexec_fn=prepare,  # noqa: PLW1509  # system calls alone, which take no lock that another thread may hold
        )

    @property
    def pid(self) -> int:
        """The process of the command."""
        return self._process.pid

    def wait(self, on_signal: Callable[[int], None] = lambda _number: None) -> int:
        """Pass signals on until the command has ended; returns its status, minus the signal for one.

        A command that was stopped is waited for, however long.
        """
        while (status := self._poll()) is None:
            number = self._signals.next(_TICK_SECONDS)
            if number is not None:
                on_signal(number)
                self._pass_on(number)
        self._process.returncode = status
        return status

    def _poll(self) -> int | None:
        while True:
            pid, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return None
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self.stopped = os.WIFSTOPPED(status)
            else:
                return os.waitstatus_to_exitcode(status)

    def _pass_on(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._signals.shares_terminal:
                os.kill(self._process.pid, number)
            else:
                os.killpg(self._process.pid, number)


def _in_foreground() -> bool:
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


def _prctl() -> Callable[[int, int], int] | None:
    try:
        function: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return function
