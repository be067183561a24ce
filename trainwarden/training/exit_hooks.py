"""Hooks into the ends of a Python process: uncaught exceptions, `sys.exit`, signals, the end of the main module."""

from __future__ import annotations

import atexit
import builtins
import opcode
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from trainwarden.training.notebook import ipython_shell
from trainwarden.training.outcome import (
    SUCCEEDED,
    AmbiguousExit,
    AttemptOutcome,
    exception_outcome,
    exit_outcome,
    signal_outcome,
)
from trainwarden.training.termination import ReceivedSignal, TerminationSignals

# RETURN_CONST exists in some versions of Python only.
_RETURNS = frozenset(opcode.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opcode.opmap)


class ExitHooks:
    """Calls `on_end` on every end of the process that Python can see; every hook that was there before still runs.

    Args:
        on_end: called with the outcome, in the thread that ended, possibly more than once.
        loop_reports: returns how often the training loop has reported.
        loop_thread: returns the thread that reported last, None before the first report.
        is_done: returns whether the last step was reported.
    """

    def __init__(
        self,
        on_end: Callable[[AttemptOutcome], None],
        loop_reports: Callable[[], int],
        loop_thread: Callable[[], int | None],
        is_done: Callable[[], bool],
    ) -> None:
        self._on_end = on_end
        self._loop_thread = loop_thread
        self._is_done = is_done
        self._exit_status = ExitStatusTracker(loop_reports)
        self._previous_hook = sys.excepthook
        self._previous_thread_hook = threading.excepthook
        self._thread = threading.current_thread()
        self._process_end: Any = None
        self._previous_exit = os._exit
        self.signals = TerminationSignals(self._on_signal)

    def install(self) -> None:
        """Install all hooks."""
        atexit.register(self._at_exit)
        self._process_end = _at_end_of_child(self._at_child_exit)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        os._exit = self._on_immediate_exit
        self._exit_status.install()
        self.signals.install()

    def remove(self) -> None:
        """Restore the previous hooks, except where another library has since installed one of its own."""
        atexit.unregister(self._at_exit)
        if self._process_end is not None:
            self._process_end.cancel()
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        if threading.excepthook == self._on_thread_exception:
            threading.excepthook = self._previous_thread_hook
        if os._exit == self._on_immediate_exit:
            os._exit = self._previous_exit
        self._exit_status.remove()
        self.signals.remove()

    @property
    def received(self) -> ReceivedSignal | None:
        """The last signal that asked the process to end, or warned it."""
        return self.signals.received

    def is_caught_perhaps(self, exc: BaseException) -> bool:
        """Whether the program may catch `exc`, an exit with an error status, and then end well.

        Only exits from the main thread, where a hook of ours sees the end of the process.
        """
        ends_badly = isinstance(exc, SystemExit) and exception_outcome(exc).status == "failed"
        is_main = threading.current_thread() is threading.main_thread()
        return ends_badly and is_main and self._exit_status.sees_end and ipython_shell() is None

    def _at_child_exit(self) -> None:
        # Called within a `finally`, so that an exception that ends the process is the current one.
        exc = sys.exc_info()[1]
        if isinstance(exc, SystemExit) and exc.code and exc.__context__ is not None:
            # torch.multiprocessing exits while it handles the exception of the rank.
            exc = exc.__context__
        self._on_end(SUCCEEDED if exc is None else exception_outcome(exc))

    def _at_exit(self) -> None:
        cause = self._exit_status.exit_cause()
        self._on_end(SUCCEEDED if cause is None else exception_outcome(cause))

    def _on_exception(self, kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
        self._on_end(exception_outcome(exc))
        self._previous_hook(kind, exc, trace)

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        # A training may run in a thread of its own, whose exception leaves the process with status 0.
        thread, exc = args.thread, args.exc_value
        trains = thread is not None and (thread is self._thread or thread.ident == self._loop_thread())
        if trains and exc is not None and not isinstance(exc, SystemExit):
            self._on_end(exception_outcome(exc))
        self._previous_thread_hook(args)

    def _on_immediate_exit(self, status: int) -> NoReturn:
        # It calls no exit handler, and shows no exception that is being handled.
        if isinstance(status, int):
            outcome, exc = exit_outcome(status), sys.exc_info()[1]
            names_cause = outcome.failure is not None and outcome.failure.slug != "nonzero_exit"
            if outcome.status == "failed" and not names_cause and isinstance(exc, Exception):
                outcome = exception_outcome(exc)
            # Any thread may leave so, in the middle of a step: status 0 alone is no success.
            if outcome.status != "succeeded" or self._is_done():
                self._on_end(outcome)
        self._previous_exit(status)

    def _on_signal(self) -> None:
        if self.received:
            self._on_end(signal_outcome(self.received))


class ExitStatusTracker:
    """Finds the exit status of the interpreter for an exit handler, to which Python does not pass it.

    It records the calls of `sys.exit`, `exit` and `quit`, and whether the main module's frame returned.

    Args:
        loop_reports: returns how often the training loop has reported. A `sys.exit` after which the loop still
            reported was caught, and is not the end.
    """

    def __init__(self, loop_reports: Callable[[], int]) -> None:
        self._loop_reports = loop_reports
        # The status of the last `sys.exit`, and the number of reports at that time.
        self._requested: tuple[Any, int] | None = None
        self._displayed_before = _last_displayed()
        self._main_frame: FrameType | None = None
        self._previous_exit = sys.exit
        self._quitter: Any = type(getattr(builtins, "exit", None))
        self._previous_quit: Any = None
        self._on_quit: Any = None

    def install(self) -> None:
        """Wrap `sys.exit`, `exit` and `quit`."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  # documented in spite of its name
        while frame is not None and frame.f_back is not None:
            frame = frame.f_back
        self._main_frame = frame
        sys.exit = self._on_exit
        # Absent under `python -S`.
        if self._quitter.__module__ == "_sitebuiltins":
            self._replace_quit(self._quitter.__call__)

    def remove(self) -> None:
        """Restore what was wrapped, except where another library has since wrapped it again."""
        self._main_frame = None
        if sys.exit == self._on_exit:
            sys.exit = self._previous_exit
        if self._previous_quit is not None and self._quitter.__call__ is self._on_quit:
            self._quitter.__call__ = self._previous_quit

    @property
    def sees_end(self) -> bool:
        """Whether `exit_cause` can distinguish a normal end from any other."""
        return self._main_frame is not None

    def exit_cause(self) -> BaseException | None:
        """Return the exception that ended the interpreter, None for a normal end; to be called in an exit handler."""
        displayed = _last_displayed()
        if displayed is self._displayed_before:
            displayed = None
        frame = self._main_frame
        if frame is None or frame.f_code.co_code[frame.f_lasti] in _RETURNS:
            # A notebook displays the exception of a cell, continues, and later ends normally.
            return displayed and AmbiguousExit(f"ended after {type(displayed).__name__} was shown and not raised on")
        if self._requested is not None and self._requested[1] == self._loop_reports():
            return SystemExit(self._requested[0])
        # An excepthook installed over ours may report exceptions without calling ours.
        return displayed or AmbiguousExit("left by a SystemExit whose status is not known")

    def _replace_quit(self, previous: Any) -> None:
        def leave(quitter: Any, code: Any = None) -> Any:
            self._remember(code)
            return previous(quitter, code)

        self._previous_quit, self._on_quit = previous, leave
        self._quitter.__call__ = leave

    def _on_exit(self, status: Any = None, /) -> Any:
        self._remember(status)
        return self._previous_exit(status)

    def _remember(self, status: Any) -> None:
        # In any other thread `sys.exit` ends only that thread.
        if threading.current_thread() is threading.main_thread():
            self._requested = (status, self._loop_reports())


def _at_end_of_child(callback: Callable[[], None]) -> Any:
    """Call `callback` at the end of this process if multiprocessing has started it; such a process may skip `atexit`.

    Returns:
        An object with a method `cancel`; None for any other process.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    from multiprocessing.util import Finalize  # noqa: PLC0415  # only such a process needs it

    return Finalize(None, callback, exitpriority=100)


def _last_displayed() -> BaseException | None:
    """Return the last exception that an interactive interpreter or a notebook displayed."""
    displayed = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return displayed if isinstance(displayed, BaseException) else None
