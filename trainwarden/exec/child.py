"""The wrapped command as a process: its group, and the signals that are meant for it.

In the foreground of a terminal it stays in our process group: Ctrl-C and Ctrl-Z reach it, us and the script around us
as they would without us, and only what a process sends to us is passed on. Anywhere else it has a group of its own, and
every signal that is sent to us, or to our group, goes to that: once, to the command and to what it has started.
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
    """The signals that are meant for the command, held back until they can be passed on; `restore` lets them go."""

    def __init__(self) -> None:
        self.shares_terminal = _in_foreground()
        wanted = _FORWARDED if self.shares_terminal else _FORWARDED | {signal.SIGTSTP}
        # What we were started to ignore, the command ignores as well.
        self._forwarded = frozenset(number for number in wanted if signal.getsignal(number) != signal.SIG_IGN)
        # Where a parent ignores it, nobody is told of the end of a child.
        self._previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, self._forwarded | {signal.SIGCHLD})

    def next(self, timeout: float) -> int | None:
        """The next signal to pass on; None when a child changed its state, or none came in time."""
        said = signal.sigtimedwait(self._forwarded | {signal.SIGCHLD}, timeout)
        if said is None or said.si_signo == signal.SIGCHLD:
            return None
        # The terminal has sent it to the command as well.
        return None if self.shares_terminal and said.si_code > 0 else said.si_signo

    def restore(self) -> None:
        """Leave everything as it was. What came for the command after its end is for nobody."""
        while signal.sigtimedwait(self._forwarded, 0) is not None:
            pass
        signal.signal(signal.SIGCHLD, self._previous)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


class Child:
    """A running command.

    Should we die without a word, the kernel sends it SIGHUP, as a terminal does that goes away.

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
