"""`trainwarden fail MESSAGE`: a shell script's run has failed."""

from __future__ import annotations

import os
import sys

from trainwarden.failures.exits import classify_exit
from trainwarden.record.folder import ERROR, METADATA
from trainwarden.record.metadata import Metadata
from trainwarden.shell.arguments import Misuse, parse, whole
from trainwarden.shell.attempt import close_attempt, is_undisputed
from trainwarden.shell.command import OPTIONS, change_record, command_context, publish, run
from trainwarden.taxonomy import ERROR_TYPES, FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwarden.exec.tail import Trace
    from trainwarden.shell.command import CommandContext
    from trainwarden.taxonomy import Failure
    from trainwarden.training.outcome import AttemptOutcome

USAGE = """\
usage: trainwarden fail MESSAGE [--failure SLUG | --error-type TYPE] [--exit-code N] [--run-id ID] [--runs-dir DIR]

Records that the run has failed, and why. MESSAGE `-` is read from standard input: a whole traceback will do. What kind
of failure it is follows from --failure or --error-type, else from MESSAGE, else from --exit-code. An exit code that
stands for a request to end (130, 143, ...) makes the run cancelled, as does the traceback of a KeyboardInterrupt. The
first failure of an attempt counts.
Status 1: nothing was recorded. 2 is misuse.
"""
_MAX_BYTES = 2**20


class ReportedFailure:
    """A failure as a script reports it."""

    __slots__ = ("exception_type", "exit_code", "failure", "message", "traceback")

    def __init__(self, failure: Failure, message: str, trace: Trace | None, exit_code: int | None) -> None:
        self.failure = failure
        self.message = message
        self.exception_type = trace.exception_type if trace else None
        self.traceback = trace.text if trace else None
        self.exit_code = exit_code

    def outcome(self) -> AttemptOutcome:
        """Return the outcome of the attempt."""
        from trainwarden.training.outcome import AttemptOutcome  # noqa: PLC0415  # takes long to load

        return AttemptOutcome("failed", self.message, self.failure, self.exception_type, self.traceback, self.exit_code)


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--failure": str, "--error-type": str, "--exit-code": whole})
        if len(others) != 1:
            raise Misuse(f"{len(others)} messages: one was expected, in quotes, or - to read it from standard input")
        context = command_context(options, os.environ)
        message = sys.stdin.buffer.read(_MAX_BYTES) if others == ["-"] else os.fsencode(others[0])
        failure = _classify(message, options)
        written = change_record(context, lambda: _fail_undisputed(context, failure)) if failure else None
        if written is not None:
            return publish(context, written)
        from trainwarden.shell.ending import cancelled, record_end  # noqa: PLC0415  # takes long to load

        return record_end(context, failure.outcome() if failure else cancelled(options.get("exit-code")))

    return run("fail", USAGE, body)


def _fail_undisputed(context: CommandContext, reported: ReportedFailure) -> list[str] | None:
    """Record that the attempt has failed; None where there is evidence to weigh, which takes long to load.

    Returns:
        The names of the files that were written.

    Raises:
        OSError: the folder cannot be written.
    """
    values = context.store.values(METADATA)
    if not is_undisputed(context, Metadata.from_json(values)):
        return None
    is_first = context.store.record_failure(
        key=str(context.key),
        failure=reported.failure,
        message=reported.message,
        rank=context.rank,
        exception_type=reported.exception_type,
        traceback=reported.traceback,
        exit_code=reported.exit_code,
    )
    if not is_first:
        return None
    close_attempt(context, values, "failed", reported.message)
    return [ERROR, METADATA]


def _classify(message: bytes, options: Mapping[str, Any]) -> ReportedFailure | None:
    """Return the failure that the arguments describe; None where they describe a request to end that was met.

    Raises:
        Misuse: an option names no failure.
    """
    code = options.get("exit-code")
    by_code = classify_exit(code) if code else None
    named = _named(options)
    if named is None and by_code is not None and by_code.error_type == "cancelled":
        return None
    text = message.decode("utf-8", "replace").strip()
    known, trace = (None, None) if named is not None and "Traceback" not in text else _cause(text)
    if named is None and trace and trace.exception_type == "KeyboardInterrupt":
        return None
    failure = named or known or by_code or FAILURES["user_exception" if trace else "nonzero_exit"]
    return ReportedFailure(failure, (trace.reason if trace else text) or "the script gave no message", trace, code)


def _cause(text: str) -> tuple[Failure | None, Trace | None]:
    """Return the failure of a message; of a log with tracebacks also the one with the cause."""
    from trainwarden.failures.judge import UNKNOWN  # noqa: PLC0415  # not where the failure is named
    from trainwarden.failures.records import cause_in  # noqa: PLC0415

    cause = cause_in(text)
    slug = cause.failure if cause and cause.failure != UNKNOWN else None
    if slug is None:
        from trainwarden.failures.messages import failure_of_phrase  # noqa: PLC0415  # a rare kind of message

        slug = failure_of_phrase(text)
    trace = None
    if cause and "Traceback" in text:
        from trainwarden.exec.tail import trace_with  # noqa: PLC0415  # not needed for a message

        trace = trace_with(text.replace("\r", "\n").split("\n"), cause.source.line)
    return FAILURES[slug] if slug else None, trace


def _named(options: Mapping[str, Any]) -> Failure | None:
    slug, kind = options.get("failure"), options.get("error-type")
    if slug and kind:
        raise Misuse("--failure and --error-type: one of them was expected")
    if slug and slug not in FAILURES:
        raise Misuse(f"--failure {slug[:80]!r}: there is no such failure{_nearest(slug)}")
    if kind and kind not in ERROR_TYPES:
        raise Misuse(f"--error-type {kind[:80]!r}: one of these was expected: {', '.join(sorted(ERROR_TYPES))}")
    if slug:
        return FAILURES[slug]
    return next((failure for failure in FAILURES.values() if failure.error_type == kind), None) if kind else None


def _nearest(slug: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # for those who misspell

    near = get_close_matches(slug[:80].lower().replace("-", "_"), list(FAILURES), 3)
    hint = f"{' or '.join(near)}, or another" if near else "one"
    return f"; expected {hint} of the {len(FAILURES)} in docs/failures.md"
