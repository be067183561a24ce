"""Signals that ask a process to end, or warn that it is about to be ended, and the reason for them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

TIME_LIMIT = "time limit"
PREEMPTED = "preempted"

# `sbatch --signal` warns this long before the time limit, or less.
_WARNING_SECONDS = 900.0
# SLURM checks time limits every 30 s.
_LIMIT_SECONDS = 120.0
# A limit that passed longer ago was extended or not enforced, since the process lives.
_PAST_SECONDS = 600.0
# A warned process has reacted by then.
_HEED_SECONDS = 1800.0
# A failure so soon after a request to end is its consequence.
_CONSEQUENCE_SECONDS = 120.0


@dataclass(frozen=True)
class ReceivedSignal:
    """A signal that asked the process to end or warned it. `time` is Unix seconds.

    `is_warning`: the process may go on, and a later end may have another cause.
    """

    number: int
    time: float
    reason: str
    is_warning: bool = False

    def explains_leaving(self, now: float) -> bool:
        """Whether it may be the reason why the process ended at `now` before it was finished."""
        return not self.is_warning or abs(now - self.time) < _HEED_SECONDS

    def explains_failing(self, now: float) -> bool:
        """Whether it may be the reason for a failure at `now`; a warning of unknown origin never is."""
        is_known = not self.is_warning or self.reason in (TIME_LIMIT, PREEMPTED)
        return is_known and abs(now - self.time) < _CONSEQUENCE_SECONDS


def signal_reason(number: int, now: float, environ: Mapping[str, str] = os.environ) -> str:
    """Return the reason for a signal: a time limit, a preemption, else the signal's name.

    Newer versions of SLURM set `SLURM_JOB_END_TIME` to the end of the job's time limit, Unix seconds. Where it is set,
    a SIGUSR1 far from that time is the warning of a preemption. A SIGTERM from a user, a preemption and an eviction
    cannot be distinguished.

    Args:
        number: of the signal.
        now: Unix seconds.
        environ: environment variables of the process.
    """
    end = _end_time(environ)
    if end is not None and number in (signal.SIGTERM, signal.SIGUSR1):
        lead = _WARNING_SECONDS if number == signal.SIGUSR1 else _LIMIT_SECONDS
        if end - lead <= now <= end + _PAST_SECONDS:
            return TIME_LIMIT
        if number == signal.SIGUSR1:
            return PREEMPTED
    return signal.Signals(number).name


def _end_time(environ: Mapping[str, str]) -> float | None:
    text = environ.get("SLURM_JOB_END_TIME", "") if "SLURM_JOB_ID" in environ else ""
    return float(text) if text.isascii() and text.isdigit() and 0 < len(text) < 12 else None


class TerminationSignals:
    """Handles SIGTERM and SIGUSR1 without changing their effect.

    A handler that was installed before is called and decides. Without one, the process still dies of the signal. When
    the program later replaces our handler, `check` notices it in any thread and `reinstall` wraps the new handler in
    the main thread: else a program that saves and exits with status 0 on SIGTERM would look finished.

    Args:
        on_end: called before the process dies of a signal, in the main thread.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._numbers: set[int] = set()
        self.received: ReceivedSignal | None = None
        # A plain attribute, because every `step()` reads it.
        self.replaced = False

    def install(self) -> None:
        """Install the handlers, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGUSR1):
            previous = signal.getsignal(number)
            if _may_handle(number, previous):
                self._numbers.add(number)
                signal.signal(number, _Handler(self._on_signal, previous))

    def check(self) -> None:
        """Set `replaced` if the program has installed handlers of its own since."""
        self.replaced = any(self._is_replaced(number) for number in tuple(self._numbers))

    def reinstall(self) -> None:
        """Wrap the handlers that replaced ours, if this is the main thread."""
        self.replaced = False
        if threading.current_thread() is threading.main_thread():
            for number in filter(self._is_replaced, tuple(self._numbers)):
                signal.signal(number, _Handler(self._on_signal, signal.getsignal(number)))

    def remove(self) -> None:
        """Restore the previous handlers, except where the program has since installed one of its own."""
        for number in tuple(self._numbers):
            current: Any = signal.getsignal(number)
            # Raised outside of the main thread.
            with contextlib.suppress(ValueError):
                if self._is_ours(current):
                    signal.signal(number, current.previous)
        self.replaced = False
        self._numbers.clear()

    def _is_ours(self, handler: Any) -> bool:
        return isinstance(handler, _Handler) and handler.on_signal == self._on_signal

    def _is_replaced(self, number: int) -> bool:
        current = signal.getsignal(number)
        return callable(current) and not self._is_ours(current) and _may_handle(number, current)

    def _on_signal(self, handler: _Handler, number: int, frame: FrameType | None) -> None:
        previous = handler.previous
        self._remember(number, is_warning=callable(previous) and number == signal.SIGUSR1)
        if callable(previous):
            # It may save a checkpoint and exit later; `received` then explains that end.
            previous(number, frame)
            return
        if signal.getsignal(number) is not handler:
            # Called by a handler that replaced ours and that decides how the process ends.
            return
        self._on_end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _remember(self, number: int, *, is_warning: bool) -> None:
        now, before = time.time(), self.received
        reason = signal_reason(number, now)
        if before and before.is_warning and before.explains_leaving(now) and reason == signal.Signals(number).name:
            # This is the end that the warning announced.
            reason = before.reason
        self.received = ReceivedSignal(number, now, reason, is_warning)


class _Handler:
    """The handler of one signal and its predecessor.

    One object per installation: another library may save it and reinstall it later.
    """

    def __init__(self, on_signal: Callable[[_Handler, int, FrameType | None], None], previous: Any) -> None:
        self.on_signal = on_signal
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.on_signal(self, number, frame)


def _may_handle(number: int, previous: Any) -> bool:
    if callable(previous):
        # Outside of SLURM a program may use SIGUSR1 for anything.
        return number != signal.SIGUSR1 or "SLURM_JOB_ID" in os.environ
    # An ignored signal ends nothing, and a native handler could not be called after ours.
    if previous is not signal.SIG_DFL or _has_native_handler(number):
        return False
    # Lightning requeues the SLURM job on SIGUSR1, but only where no handler is installed.
    return number != signal.SIGUSR1 or not sys.modules.keys() & {"lightning.pytorch", "pytorch_lightning"}


def _has_native_handler(number: int) -> bool:
    """Whether native code handles the signal without Python's knowledge, as `faulthandler.register` does."""
    try:
        with open("/proc/self/status", "rb") as status:  # noqa: PTH123  # pathlib is not needed here
            caught = next(line.split()[1] for line in status if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration, IndexError):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)
