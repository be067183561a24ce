"""How a process ends, and how its record learns of it."""

import atexit
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from trainwarden.classify import classify_exception, classify_exit
from trainwarden.record.crash import read_crash, trace_path
from trainwarden.record.sentinels import Sentinel, announced_restart, current_error
from trainwarden.taxonomy import FAILURES, Failure
from trainwarden.training.exit_status import ExitStatus, UnknownExit
from trainwarden.training.peers import fallen_peer
from trainwarden.training.termination import Received, TerminationSignals

# A restart that was announced and never came must not hide a later end of the run's own. One that came may let the
# process take its time to end.
ANNOUNCEMENT_SECONDS = 120.0
_GRACE_SECONDS = 1800.0

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class Ending:
    """The end of this process's part in an attempt, as the process itself sees it.

    `unknown`: it left in a way that may be success or failure, and which one it cannot see.
    """

    status: Literal["succeeded", "failed", "cancelled"]
    reason: str | None = None
    failure: Failure | None = None
    exception_type: str | None = None
    traceback: str | None = None
    exit_code: int | None = None
    signalled: bool = False
    unknown: bool = False


SUCCEEDED = Ending("succeeded")


def of_exception(exc: BaseException) -> Ending:
    """The ending that an exception makes when nobody catches it."""
    if isinstance(exc, KeyboardInterrupt):
        return Ending("cancelled", "SIGINT", signalled=True)
    if type(exc).__name__ == "SIGTERMException":
        # Lightning leaves by it when it was told to end, and its code is that of a success.
        return Ending("cancelled", "SIGTERM", signalled=True, unknown=True)
    if isinstance(exc, SystemExit):
        return of_exit(exc.code)
    if is_given_up(exc):
        what = "generator was closed" if isinstance(exc, GeneratorExit) else "task was cancelled"
        return Ending("cancelled", f"its {what} before it came to its end", unknown=True)
    if isinstance(exc, UnknownExit):
        return Ending("cancelled", str(exc), unknown=True)
    name = type(exc).__name__
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001  # the __str__ of a stranger
        text = ""
    return Ending("failed", text or name, classify_exception(exc), name, _traceback(exc))


def of_exit(code: Any) -> Ending:
    """The ending that `sys.exit(code)` makes."""
    if code is None or code == 0:
        return SUCCEEDED
    status = code if isinstance(code, int) else 1
    failure = classify_exit(status)
    if failure and failure.error_type == "cancelled":
        return Ending("cancelled", f"exit status {status}", signalled=True)
    reason = f"exit status {status}" if isinstance(code, int) else str(code)
    return Ending("failed", reason, failure, "SystemExit", exit_code=status)


def of_signal(received: Received) -> Ending:
    """The ending that a request to end makes."""
    return Ending("cancelled", received.reason, signalled=True)


def judge(
    ending: Ending,
    received: Received | None,
    step: int | None,
    total: int | None,
    now: float,
    *,
    high_water: int | None = None,
) -> Ending:
    """The ending in the light of what the loop and a signal before have said.

    Args:
        ending: as the process left.
        received: the last signal that asked it to, if any.
        step: the last one reported.
        total: the step after which the run is finished.
        now: Unix seconds.
        high_water: the highest step of all attempts.
    """
    is_done = total is not None and step is not None and step >= total
    if ending.unknown and is_done:
        ending = SUCCEEDED
    left_early = not is_done and (ending.status == "succeeded" or ending.unknown)
    if received is not None and (
        (left_early and received.explains_leaving(now))
        or (ending.status == "failed" and received.explains_failing(now))
    ):
        return of_signal(received)
    if ending.unknown:
        logger.warning("%s; a `with` block around all of the loop has its end recorded", ending.reason)
    if ending.status == "succeeded" and total is not None and not is_done:
        if step is None and high_water is not None and high_water >= total:
            return replace(ending, reason="was finished already")
        at = "before the first step" if step is None else f"at step {step}"
        return replace(ending, reason=f"ended {at} of {total}")
    return ending


def settle(ending: Ending, folder: Path, key: str, rank: int, attempt_start: float) -> Ending:
    """The ending that the attempt has, given what others wrote or did not write any more.

    That is another rank's `_error`, an announced restart, or a rank that fell without a word: launchers end the others
    by SIGTERM then, and that is no user's wish.
    """
    error = current_error(folder, key, attempt_start)
    if isinstance(error, Sentinel):
        return ending if ending.status == "failed" else Ending("failed", error.message)
    if ending.status == "succeeded":
        return ending
    age = _announcement_age(folder, key)
    # Where one rank is ended, the others may see no more of it than a broken connection.
    if age < ANNOUNCEMENT_SECONDS:
        return replace(ending, status="cancelled", reason="restart")
    peer = fallen_peer(folder, key, rank) if ending.signalled and ending.reason != "SIGINT" else None
    crash = read_crash(trace_path(folder, peer.rank)) if peer else None
    if crash is not None and crash.attempt_key == key:
        return Ending("failed", crash.message, FAILURES["crash_signal"], None, crash.trace, crash.exit_code)
    if peer is not None:
        reason = f"rank {peer.rank} (process {peer.pid}) is gone without a word; then this one was told to end"
        return Ending("failed", reason, FAILURES["killed"])
    return replace(ending, reason="restart") if ending.signalled and age < _GRACE_SECONDS else ending


def _announcement_age(folder: Path, key: str) -> float:
    restart = announced_restart(folder, key)
    return math.inf if restart is None or restart.time is None else abs(time.time() - restart.time)


def _traceback(exc: BaseException) -> str | None:
    import traceback  # noqa: PLC0415  # loaded before by the recorder

    try:
        return "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
    except Exception:  # noqa: BLE001  # a trace that cannot be printed must not hide the failure itself
        return None


def is_given_up(exc: BaseException) -> bool:
    """Whether a loop was left from outside, by whoever awaits it or reads from it: how that one ends says why."""
    # Known by name: asyncio and trio need not be there.
    return isinstance(exc, GeneratorExit) or (
        not isinstance(exc, Exception) and type(exc).__name__ in {"CancelledError", "Cancelled"}
    )


class EndHooks:
    """Listens for every end that Python can see, and leaves all else as it was.

    Args:
        on_end: called with the ending, in the thread that it was in, and maybe more than once.
        moves: a number that changes when the training loop moves.
        loop_thread: which thread it was last in, None before.
    """

    def __init__(
        self, on_end: Callable[[Ending], None], moves: Callable[[], int], loop_thread: Callable[[], int | None]
    ) -> None:
        self._on_end = on_end
        self._loop_thread = loop_thread
        self._exit_status = ExitStatus(moves)
        self._previous_hook = sys.excepthook
        self._previous_thread_hook = threading.excepthook
        self._thread = threading.current_thread()
        self.signals = TerminationSignals(self._on_signal)

    def install(self) -> None:
        """Begin to listen."""
        atexit.register(self._at_exit)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        self._exit_status.install()
        self.signals.install()

    def remove(self) -> None:
        """Stop listening; what others put over our hooks since stays."""
        atexit.unregister(self._at_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        if threading.excepthook == self._on_thread_exception:
            threading.excepthook = self._previous_thread_hook
        self._exit_status.remove()
        self.signals.remove()

    @property
    def received(self) -> Received | None:
        """The last signal that asked the process to end, or warned it."""
        return self.signals.received

    def _at_exit(self) -> None:
        left_by = self._exit_status.left_by()
        self._on_end(SUCCEEDED if left_by is None else of_exception(left_by))

    def _on_exception(self, kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
        self._on_end(of_exception(exc))
        self._previous_hook(kind, exc, trace)

    def _on_thread_exception(self, args: "threading.ExceptHookArgs") -> None:
        # A training in a thread of its own; the process ends with status 0 all the same.
        thread, exc = args.thread, args.exc_value
        trains = thread is not None and (thread is self._thread or thread.ident == self._loop_thread())
        if trains and exc is not None and not isinstance(exc, SystemExit):
            self._on_end(of_exception(exc))
        self._previous_thread_hook(args)

    def _on_signal(self) -> None:
        if self.received:
            self._on_end(of_signal(self.received))
