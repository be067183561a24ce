"""Signals that ask a process to end, or warn that it is about to be ended, and why."""

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
# SLURM looks every half minute who has used up his time.
_LIMIT_SECONDS = 120.0
# A limit that passed longer ago was extended, or none: the process lives.
_PAST_SECONDS = 600.0
# What is done about a warning is done by then.
_HEED_SECONDS = 1800.0
# A failure so soon after a request to end is its consequence.
_CONSEQUENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Received:
    """A signal that asked the process to end or warned it, when (Unix seconds) and why.

    `is_warning`: the process may live on, and what it does later need not have to do with it.
    """

    number: int
    time: float
    reason: str
    is_warning: bool = False

    def explains_leaving(self, now: float) -> bool:
        """Whether it may be why the process left at `now` before it was done."""
        return not self.is_warning or abs(now - self.time) < _HEED_SECONDS

    def explains_failing(self, now: float) -> bool:
        """Whether it may be why something broke at `now`; what a user may have sent for his own ends is not."""
        is_known = not self.is_warning or self.reason in (TIME_LIMIT, PREEMPTED)
        return is_known and abs(now - self.time) < _CONSEQUENCE_SECONDS


def reason_for(number: int, now: float, environ: Mapping[str, str] = os.environ) -> str:
    """Why a signal came, as far as the process can know: the signal's name if it cannot.

    Newer versions of SLURM say in `SLURM_JOB_END_TIME` when the job's time is up; where they do, a SIGUSR1 far from
    that time is the warning of a preemption. A SIGTERM looks the same from a user, a preemption and an eviction.
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
    """Listens for SIGTERM and SIGUSR1, and leaves what they do as it was.

    A handler that was there before is called and decides. Where there was none the process still dies of the signal.
    One that is put over ours later gets ours over it in turn, by `look` in any thread and then `cover` in the main one:
    else a program that saves and leaves with status 0 when it is told to end would look like one that was done.

    Args:
        on_end: called before the process dies of a signal, in the main thread.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._numbers: set[int] = set()
        self.received: Received | None = None
        # A plain attribute: `step()` looks at it every time.
        self.covered = False

    def install(self) -> None:
        """Begin to listen, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGUSR1):
            previous = signal.getsignal(number)
            if _is_ours_to_handle(number, previous):
                self._numbers.add(number)
                signal.signal(number, _Handler(self._on_signal, previous))

    def look(self) -> None:
        """See whether a program has put handlers of its own over ours."""
        self.covered = any(self._is_covered(number) for number in tuple(self._numbers))

    def cover(self) -> None:
        """Put ours over them, if this is the main thread."""
        self.covered = False
        if threading.current_thread() is threading.main_thread():
            for number in filter(self._is_covered, tuple(self._numbers)):
                signal.signal(number, _Handler(self._on_signal, signal.getsignal(number)))

    def remove(self) -> None:
        """Stop listening; what others put over our handlers since stays."""
        for number in tuple(self._numbers):
            current: Any = signal.getsignal(number)
            # Only the main thread may.
            with contextlib.suppress(ValueError):
                if self._is_ours(current):
                    signal.signal(number, current.previous)
        self.covered = False
        self._numbers.clear()

    def _is_ours(self, handler: Any) -> bool:
        return isinstance(handler, _Handler) and handler.on_signal == self._on_signal

    def _is_covered(self, number: int) -> bool:
        current = signal.getsignal(number)
        return callable(current) and not self._is_ours(current) and _is_ours_to_handle(number, current)

    def _on_signal(self, handler: "_Handler", number: int, frame: FrameType | None) -> None:
        previous = handler.previous
        self._remember(number, is_warning=callable(previous) and number == signal.SIGUSR1)
        if callable(previous):
            # It may save a checkpoint and leave in its own time; the end comes later, and remembers the signal.
            previous(number, frame)
            return
        if signal.getsignal(number) is not handler:
            # A handler that was put over ours calls it; how the process ends is for that one to say.
            return
        self._on_end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _remember(self, number: int, *, is_warning: bool) -> None:
        now, before = time.time(), self.received
        reason = reason_for(number, now)
        if before and before.is_warning and before.explains_leaving(now) and reason == signal.Signals(number).name:
            # The end that was announced has come.
            reason = before.reason
        self.received = Received(number, now, reason, is_warning)


class _Handler:
    """Ours for one signal, and what was there before it: one each, for whoever finds one may bring it back later."""

    def __init__(self, on_signal: "Callable[[_Handler, int, FrameType | None], None]", previous: Any) -> None:
        self.on_signal = on_signal
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.on_signal(self, number, frame)


def _is_ours_to_handle(number: int, previous: Any) -> bool:
    if callable(previous):
        # Elsewhere than under SLURM a program may use SIGUSR1 for anything.
        return number != signal.SIGUSR1 or "SLURM_JOB_ID" in os.environ
    # An ignored signal ends nothing, and a handler from outside Python could not be called after ours.
    if previous is not signal.SIG_DFL or _is_caught_outside(number):
        return False
    # Lightning has SLURM start the job again on SIGUSR1, but only where it finds no handler.
    return number != signal.SIGUSR1 or not sys.modules.keys() & {"lightning.pytorch", "pytorch_lightning"}


def _is_caught_outside(number: int) -> bool:
    """Whether native code handles a signal of which Python knows nothing, as `faulthandler.register` does."""
    try:
        with open("/proc/self/status", "rb") as status:  # noqa: PTH123  # pathlib is not needed here
            caught = next(line.split()[1] for line in status if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration, IndexError):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)
