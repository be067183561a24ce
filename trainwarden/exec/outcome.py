"""How a command ended, inferred from its exit status and from the end of what it printed."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

from trainwarden.classify import classify_exit, classify_message, classify_raised
from trainwarden.exec.tail import Tail, Trace
from trainwarden.record.crash import Crash
from trainwarden.taxonomy import FAILURES, Failure
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, signal_outcome
from trainwarden.training.termination import ReceivedSignal, signal_reason

# Failures and exit statuses that are more certain than any text.
_CERTAIN = frozenset(("sdc_suspect", "killed"))
_CERTAIN_STATUSES = (16, 17, 93, 126, 127)
_LINES = 50


def command_outcome(status: int, tail: Tail, crash: Crash | None = None) -> AttemptOutcome:
    """Return the ending of a command, leaving aside the signals that it was sent.

    Args:
        status: as `subprocess` gives it, minus the signal.
        tail: the end of its output.
        crash: what its interpreter wrote when it crashed.
    """
    failure = classify_exit(status)
    if failure is None:
        return SUCCEEDED
    if failure.error_type == "cancelled":
        return _cancelled(-status if status < 0 else status - 128)
    code = status if status > 0 else 128 - status
    if crash is not None:
        return AttemptOutcome("failed", crash.message, FAILURES["crash_signal"], traceback=crash.trace, exit_code=code)
    ending = _explained(failure, status, tail)
    return replace(ending, exit_code=code)


def status_text(status: int) -> str:
    """Return the exit status, as `subprocess` gives it, in words."""
    if status >= 0:
        return f"the command ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"the command was killed by signal {-status}{name}"


def _explained(failure: Failure, status: int, tail: Tail) -> AttemptOutcome:
    if failure.slug in _CERTAIN or status in _CERTAIN_STATUSES:
        return AttemptOutcome("failed", status_text(status), failure)
    trace = tail.trace()
    if trace is not None:
        message = f"{trace.exception_type}: {trace.message}" if trace.exception_type else trace.message
        known = _raised(trace, tail)
        if trace.exception_type == "KeyboardInterrupt":
            return _cancelled(signal.SIGINT)
        failure = known or (FAILURES["user_exception"] if failure.slug == "nonzero_exit" else failure)
        return AttemptOutcome("failed", message, failure, trace.exception_type, trace.text)
    lines = tail.lines()
    last = f"; its last line: {lines[-1][:500]}" if lines else ""
    return AttemptOutcome("failed", status_text(status) + last, _last_known(tail) or failure)


def _cancelled(number: int) -> AttemptOutcome:
    now = time.time()
    return signal_outcome(ReceivedSignal(number, now, signal_reason(number, now)))


def _raised(trace: Trace, tail: Tail) -> Failure | None:
    found = classify_raised(trace.exception_type, trace.message) if trace.exception_type else None
    if found and found[1]:
        return found[0]
    # An earlier line may name the reason why a file is missing, or a peer is silent.
    before = _last_known(tail)
    is_grave = before is not None and before.severity in ("critical", "fatal")
    return found[0] if found and not is_grave else before


def _last_known(tail: Tail) -> Failure | None:
    found = (classify_message(line) for line in reversed(tail.lines()[-_LINES:]))
    return next((failure for failure in found if failure), None)
