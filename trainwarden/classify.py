"""Which failure an exception, a message or an exit status is.

Exceptions are told apart by type, by message and by what led to them, because one type says many things: what NCCL,
CUDA and a wrong shape raise is a RuntimeError each time. Types of other libraries are known by name, so that none is
imported.
"""

from trainwarden.failures.chain import causes, contexts, text_of
from trainwarden.failures.exception_types import Classification, of_errno, of_type, speaks_of_names
from trainwarden.failures.exits import classify_exit
from trainwarden.failures.messages import MESSAGE_LIMIT, classify_message, slug_of_message
from trainwarden.failures.raised import rebuilt
from trainwarden.taxonomy import FAILURES, Failure

__all__ = ["classify_exception", "classify_exit", "classify_message", "classify_raised", "recovery_suggestion"]


def classify_exception(exc: BaseException, *, ambient: BaseException | None = None) -> Failure:
    """The failure that an exception is; `user_exception` where neither it nor what led to it is known. Never raises.

    Of explicit causes (`raise … from`, members of a group) the one counts that explains most: something sure before
    something vague, and then the deepest. What merely was being handled counts if nothing else is known, for a training
    may run inside the `except` that found no checkpoint; or if it is grave and what hides it is vague.

    Args:
        exc: what was raised.
        ambient: what was being handled already when the call was made that raised it, and has no part in it.
    """
    try:
        return FAILURES[_slug_of(exc, ambient)]
    except Exception:  # noqa: BLE001  # no exception, however it was made, must hide itself by breaking this
        return FAILURES["user_exception"]


def classify_raised(exception_type: str, message: str) -> tuple[Failure, bool] | None:
    """The failure that the last line of a traceback tells of, and whether it is sure; None if it is not known.

    The same as `classify_exception` says of that exception alone, as far as a type's name tells of its bases.

    Args:
        exception_type: as printed: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: what is printed after the colon.
    """
    exc = rebuilt(exception_type, message)
    finding = _of_link(exc)
    if finding and (finding.sure or "." not in exception_type):
        return FAILURES[finding.slug], finding.sure
    if speaks_of_names(exc):
        return None
    # The name of a type that is not known may say something too.
    known = classify_message(f"{exception_type}: {message}")
    if known:
        return known, not known.cascade
    return (FAILURES[finding.slug], False) if finding else None


def recovery_suggestion(exc: BaseException) -> str:
    """What to change after such an exception, in a sentence or two. Never raises."""
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
    if speaks_of_names(exc) and slug != "driver_setup" and " in DataLoader worker process " not in text:
        return None
    return Classification(slug, sure=not FAILURES[slug].cascade)
