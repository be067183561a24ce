"""The failure that `trainwarden fail` tells of, and the quick way to record one that nothing speaks against."""

# pathlib is slow to import.
# ruff: noqa: PTH103, PTH108, PTH118

from __future__ import annotations

import os

from trainwarden.failures.exits import classify_exit
from trainwarden.record.error import error_document
from trainwarden.record.locks import writing
from trainwarden.record.place import METADATA, RANKS, encode, write_temporary
from trainwarden.shell.arguments import Misuse
from trainwarden.shell.completion import is_undisputed
from trainwarden.shell.not_recorded import NotRecorded
from trainwarden.shell.record import close, read
from trainwarden.taxonomy import ERROR_TYPES, FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwarden.shell.speaker import Speaker
    from trainwarden.taxonomy import Failure
    from trainwarden.wrapper.tail import Trace

_ERROR = "_error"
# How the names of exceptions end, and those whose message alone says what they are.
_TYPES = ("Error", "Exception", "Interrupt", "Exit")
_SAYS_NOTHING = ("RuntimeError", "ValueError", "TypeError", "AssertionError", "Exception")


class Told:
    """A failure in a script's words."""

    __slots__ = ("exception_type", "exit_code", "failure", "message", "traceback")

    def __init__(self, failure: Failure, message: str, trace: Trace | None, exit_code: int | None) -> None:
        self.failure = failure
        self.message = message
        self.exception_type = trace.exception_type if trace else None
        self.traceback = trace.text if trace else None
        self.exit_code = exit_code


def tell(message: bytes, options: Mapping[str, Any]) -> Told | None:
    """What `trainwarden fail` tells of; None where it is a request to end that was met. Raises Misuse."""
    code = options.get("exit-code")
    by_code = classify_exit(code) if code else None
    named = _named(options)
    if named is None and by_code is not None and by_code.error_type == "cancelled":
        return None
    trace = _trace(message)
    if named is None and trace and trace.exception_type == "KeyboardInterrupt":
        return None
    text = message.decode("utf-8", "replace").strip()
    if trace:
        text = f"{trace.exception_type}: {trace.message}" if trace.exception_type else trace.message
    failure = named or _known(text, trace) or by_code or FAILURES["user_exception" if trace else "nonzero_exit"]
    return Told(failure, text or "the script said no more", trace, code)


def record(speaker: Speaker, told: Told) -> list[str] | None:
    """Record that the attempt has failed; None where more has to be weighed than this loads.

    Returns:
        The names of the files that were written.

    Raises:
        NotRecorded: the folder cannot be written.
    """
    folder = speaker.folder
    try:
        os.makedirs(os.path.join(folder, RANKS), exist_ok=True)
        with writing(folder):
            metadata = read(folder, METADATA)
            if not is_undisputed(speaker, metadata) or not _is_first(speaker, metadata, told):
                return None
            close(speaker, metadata, "failed", told.message)
    except OSError as error:
        raise NotRecorded(f"{error.filename or folder}: {error.strerror or error}") from None
    return [_ERROR, METADATA]


def _is_first(speaker: Speaker, metadata: dict[str, Any], told: Told) -> bool:
    """Write `_error`; False, and nothing is written, where another process was quicker or there are no links."""
    document = error_document(
        run_id=speaker.run_id,
        attempt=metadata.get("attempt"),
        key=str(speaker.key),
        failure=told.failure,
        message=told.message,
        rank=speaker.rank,
        exception_type=told.exception_type,
        traceback=told.traceback,
        exit_code=told.exit_code,
    )
    path = os.path.join(speaker.folder, _ERROR)
    temporary = write_temporary(path, encode(document), durable=True)
    try:
        os.link(temporary, path)
    except OSError:
        return False
    finally:
        os.unlink(temporary)
    return True


def _known(message: str, trace: Trace | None) -> Failure | None:
    kind, colon, said = (trace.exception_type, ":", trace.message) if trace else message.partition(": ")
    is_type = bool(kind and colon and kind.endswith(_TYPES) and kind.replace(".", "").isidentifier())
    if kind and is_type and kind not in _SAYS_NOTHING:
        from trainwarden.classify import classify_raised  # noqa: PLC0415  # takes long to load

        found = classify_raised(kind, said)
        return found[0] if found else None
    from trainwarden.failures.messages import classify_message  # noqa: PLC0415  # not where the failure is named

    return classify_message(message)


def _trace(message: bytes) -> Trace | None:
    if b"Traceback" not in message:
        return None
    from trainwarden.wrapper.tail import Tail  # noqa: PLC0415  # its expressions take long to compile

    tail = Tail()
    tail.add(message)
    return tail.trace()


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
    meant = f"; did you mean {' or '.join(near)}?" if near else f", as {', '.join(sorted(FAILURES)[:3])} are"
    return f"{meant} docs/failures.md lists all {len(FAILURES)}"
