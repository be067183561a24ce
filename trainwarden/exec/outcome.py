"""How a command ended, inferred from its exit status and from the end of what it printed."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

from trainwarden.classify import classify_exit
from trainwarden.exec.tail import Tail, trace_with
from trainwarden.failures.judge import STEPS_THAT_PROVE_LIFE, UNKNOWN, WRAPPER
from trainwarden.failures.records import Record, cause_in, exception_in
from trainwarden.record.crash import Crash
from trainwarden.signals.progress.rises import last_rises
from trainwarden.taxonomy import FAILURES, Failure
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, signal_outcome
from trainwarden.training.termination import ReceivedSignal, signal_reason

# Failures and exit statuses that are more certain than any text.
_CERTAIN = frozenset(("sdc_suspect", "killed"))
_CERTAIN_STATUSES = (16, 17, 93, 126, 127)
_MESSAGE = 500


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
    """Return the ending with the cause in the output: reason, failure and traceback are of one record."""
    if failure.slug in _CERTAIN or status in _CERTAIN_STATUSES:
        return AttemptOutcome("failed", status_text(status), failure)
    text = tail.text()
    cause = cause_in(text, last_rises(f"{text}\n".encode(), STEPS_THAT_PROVE_LIFE))
    lines = text.split("\n")
    if cause is None:
        shown = text.rstrip().rpartition("\n")[2]
        last = f"; its last line: {shown[:_MESSAGE]}" if shown else ""
        return AttemptOutcome("failed", status_text(status) + last, failure)
    record: Record = cause.source
    trace = trace_with(lines, record.line)
    # A signal is more specific than a launcher's report of a failed process, or an exception of an unknown type.
    is_vague = cause.failure in (UNKNOWN, WRAPPER, None) or cause.role == "confirmation"
    known = failure if is_vague and failure.slug != "nonzero_exit" else FAILURES[cause.failure or UNKNOWN]
    if trace and trace.exception_type == "KeyboardInterrupt":
        return _cancelled(signal.SIGINT)
    if trace:
        return AttemptOutcome("failed", trace.reason, known, trace.exception_type, trace.text)
    if logged := exception_in(record.text):
        kind, message = logged
        return AttemptOutcome("failed", f"{kind}: {message}" if message else kind, known, kind)
    return AttemptOutcome("failed", f"{status_text(status)}; {record.text.strip()[:_MESSAGE]}", known)


def _cancelled(number: int) -> AttemptOutcome:
    now = time.time()
    return signal_outcome(ReceivedSignal(number, now, signal_reason(number, now)))
