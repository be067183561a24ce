"""Which failure an exception, a message or an exit status is.

Exceptions are told apart by type, by message and by what led to them, because one type says many things: what NCCL,
CUDA and a wrong shape raise is a RuntimeError each time. Types of other libraries are known by name, so that none is
imported.
"""

import re

from trainwarden.failures.chain import causes, contexts, shortened, text_of
from trainwarden.failures.exception_types import Finding, of_errno, of_type, speaks_of_names
from trainwarden.failures.leftover import is_left_over
from trainwarden.failures.phrases import PHRASES
from trainwarden.failures.phrases.phrase import Phrase
from trainwarden.taxonomy import FAILURES, Failure

# Messages can be of any size; what they are about stands at the beginning or at the end.
_MESSAGE_LIMIT = 12_000

_EXITS = {
    2: "config_error",
    16: "rerun_to_disambiguate",
    17: "sdc_suspect",
    93: "launcher_stop",
    126: "config_error",
    127: "config_error",
}
_CRASHES = frozenset(("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP"))
_REQUESTS = frozenset(("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"))


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


def classify_message(text: str) -> Failure | None:
    """The failure that one line or message tells of; None if it is not known."""
    slug = _slug_of_message(shortened(text, _MESSAGE_LIMIT))
    return FAILURES[slug] if slug else None


def recovery_suggestion(exc: BaseException) -> str:
    """What to change after such an exception, in a sentence or two. Never raises."""
    return classify_exception(exc).hint


def classify_exit(status: int) -> Failure | None:
    """The failure that an exit status alone tells of; None for 0.

    Args:
        status: as `subprocess` gives it, minus the signal, or as a shell does, 128 plus the signal.
    """
    if status == 0:
        return None
    name = _signal(-status if status < 0 else status - 128)
    if name == "SIGKILL":
        return FAILURES["killed"]
    if name in _REQUESTS:
        return FAILURES["cancelled"]
    if name in _CRASHES:
        return FAILURES["crash_signal"]
    return FAILURES[_EXITS.get(status, "nonzero_exit" if status > 0 else "killed")]


def _signal(number: int) -> str | None:
    """The name of a signal; None if there is no such."""
    if number <= 0:
        return None
    import signal  # noqa: PLC0415  # most shell commands that tell of a failure know of none

    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _slug_of(exc: BaseException, ambient: BaseException | None) -> str:
    found = [finding for link in causes(exc) if (finding := _of_link(link))]
    best = next((finding for finding in reversed(found) if finding.sure), found[-1] if found else None)
    if best is None or not best.sure:
        around = [finding for link in contexts(exc, ambient) if (finding := _of_link(link))]
        nearest = next((finding for finding in around if finding.sure), around[0] if around else None)
        if nearest and (best is None or (nearest.sure and FAILURES[nearest.slug].severity in ("critical", "fatal"))):
            best = nearest
    return best.slug if best else "user_exception"


def _of_link(exc: BaseException) -> Finding | None:
    by_type = of_type(exc)
    # First, because without memory nothing else may work.
    if by_type and by_type.slug == "host_oom":
        return by_type
    if by_type is None and isinstance(exc, KeyboardInterrupt):
        return Finding("cancelled", sure=True)
    if by_type is None and isinstance(exc, SystemExit):
        status = exc.code if isinstance(exc.code, int) else 0
        failure = classify_exit(status)
        return Finding(failure.slug, sure=True) if failure else None
    if by_errno := of_errno(exc):
        return by_errno
    by_message = _of_message(exc)
    return by_message if by_message and (by_message.sure or not by_type or not by_type.sure) else by_type


def _of_message(exc: BaseException) -> Finding | None:
    text = text_of(exc, _MESSAGE_LIMIT)
    slug = _slug_of_message(text)
    if slug is None:
        return None
    if speaks_of_names(exc) and slug != "driver_setup" and " in DataLoader worker process " not in text:
        return None
    return Finding(slug, sure=not FAILURES[slug].cascade)


def _slug_of_message(text: str) -> str | None:
    text = text.lower()
    slug = next((slug for slug, phrases in PHRASES if any(_says(text, phrase) for phrase in phrases)), None)
    return "gpu_oom_leftover" if slug == "cuda_oom" and is_left_over(text) else slug


def _says(text: str, phrase: Phrase) -> bool:
    if isinstance(phrase, str):
        return phrase in text
    needle, pattern = phrase
    return needle in text and re.search(pattern, text) is not None
