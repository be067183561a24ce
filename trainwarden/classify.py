"""Classify an exception, a message or an exit status as a failure of the taxonomy.

Exceptions are classified by type, message and causes, because one type has many meanings: NCCL, CUDA and a wrong shape
all raise RuntimeError. Types of other libraries are compared by name, so that none is imported.
"""

import builtins
import re

from trainwarden.failures.chain import causes, contexts, text_of
from trainwarden.failures.exception_types import Classification, of_errno, of_type, quotes_a_name
from trainwarden.failures.exits import classify_exit
from trainwarden.failures.messages import MESSAGE_LIMIT, classify_message, slug_of_message
from trainwarden.taxonomy import FAILURES, Failure

__all__ = ["classify_exception", "classify_exit", "classify_message", "classify_raised", "recovery_suggestion"]

# `[Errno 2] No such file or directory: '/data/x'`, and what it was moved to behind an arrow.
_ERRNO = re.compile(r"\[Errno (\d{1,5})\] ([^\n]*?)(?:: b?(['\"])([^\n]*?)\3(?: -> [^\n]*)?)?\s*", re.ASCII)


def classify_exception(exc: BaseException, *, ambient: BaseException | None = None) -> Failure:
    """Return the failure of an exception; `user_exception` if neither it nor its causes are known. Never raises.

    Of explicit causes (`raise … from`, exceptions of a group) a sure one counts before a vague one, then the deepest.
    An exception that was merely being handled counts if nothing else is known, for a training may run inside the
    `except` that found no checkpoint; or if it is critical and the one raised over it is vague.

    Args:
        exc: the exception that was raised.
        ambient: an exception that was being handled before the call that raised `exc`, and is no cause of it.
    """
    try:
        return FAILURES[_slug_of(exc, ambient)]
    except Exception:  # noqa: BLE001  # no exception, however it was made, must hide itself by breaking this
        return FAILURES["user_exception"]


def classify_raised(exception_type: str, message: str) -> tuple[Failure, bool] | None:
    """Return the failure in the last line of a traceback, and whether it is sure; None if unknown.

    The result is that of `classify_exception` for the exception alone, as far as its bases follow from its name.

    Args:
        exception_type: as printed: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: the text after the colon.
    """
    exc = _rebuild(exception_type, message)
    finding = _of_link(exc)
    if finding and (finding.sure or "." not in exception_type):
        return FAILURES[finding.slug], finding.sure
    if quotes_a_name(exc):
        return None
    # The name of an unknown type may contain a known phrase.
    known = classify_message(f"{exception_type}: {message}")
    if known:
        return known, not known.cascade
    return (FAILURES[finding.slug], False) if finding else None


def recovery_suggestion(exc: BaseException) -> str:
    """Return what to change after such an exception, one or two sentences. Never raises."""
    return classify_exception(exc).hint


def _slug_of(exc: BaseException, ambient: BaseException | None) -> str:
    found = [finding for link in causes(exc) if (finding := _of_link(link))]
    best = next((finding for finding in reversed(found) if finding.sure), found[-1] if found else None)
    if best is None or not best.sure:
        around = [finding for link in contexts(exc, ambient) if (finding := _of_link(link))]
        nearest = next((finding for finding in around if finding.sure), around[0] if around else None)
        if nearest and (best is None or (nearest.sure and FAILURES[nearest.slug].severity in ("critical", "fatal"))):
            best = nearest
    return best.slug if best else "user_exception"


def _of_link(exc: BaseException) -> Classification | None:
    by_type = of_type(exc)
    # First, because without memory nothing else may work.
    if by_type and by_type.slug == "host_oom":
        return by_type
    if by_type is None and isinstance(exc, KeyboardInterrupt):
        return Classification("cancelled", sure=True)
    if by_type is None and isinstance(exc, SystemExit):
        status = exc.code if isinstance(exc.code, int) else 0
        failure = classify_exit(status)
        return Classification(failure.slug, sure=True) if failure else None
    if by_errno := of_errno(exc):
        return by_errno
    by_message = _of_message(exc)
    return by_message if by_message and (by_message.sure or not by_type or not by_type.sure) else by_type


def _of_message(exc: BaseException) -> Classification | None:
    text = text_of(exc, MESSAGE_LIMIT)
    slug = slug_of_message(text)
    if slug is None:
        return None
    if quotes_a_name(exc) and slug != "driver_setup" and " in DataLoader worker process " not in text:
        return None
    return Classification(slug, sure=not FAILURES[slug].cascade)


def _rebuild(exception_type: str, message: str) -> BaseException:
    """Return an exception of this type with this message.

    Args:
        exception_type: as Python prints it: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: what follows the colon; the type once more, or nothing, where there was none.
    """
    arguments = () if message in ("", exception_type) else (message,)
    kind = getattr(builtins, exception_type, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if issubclass(kind, OSError) and (found := _ERRNO.fullmatch(message)):
            return OSError(int(found[1]), found[2], found[4])
        try:
            made: BaseException = kind(*arguments)
        except TypeError:
            # Some, such as UnicodeDecodeError, take more arguments than a message.
            pass
        else:
            return made
    # Known by name only: its library may not be installed.
    module, _, name = exception_type.rpartition(".")
    home = module or ("builtins" if kind else "__main__")
    stand_in: type[Exception] = type(name, (Exception,), {"__module__": home})
    return stand_in(*arguments)
