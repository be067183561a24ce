"""Classify an exception, a message or an exit status as a failure of the taxonomy.

Exceptions are classified by type, message and causes, because one type has many meanings: NCCL, CUDA and a wrong shape
all raise RuntimeError. Types of other libraries are compared by name, so that none is imported. What an exception is
classified as, a log with its traceback is classified as too: `trainwarden.failures.judge` decides about both.
"""

from trainwarden.failures.chain import causes, contexts, text_of
from trainwarden.failures.exception_types import Classification, of_errno, of_type, quotes_a_name
from trainwarden.failures.exits import classify_exit
from trainwarden.failures.judge import UNKNOWN, Evidence, find_cause
from trainwarden.failures.messages import MESSAGE_LIMIT, classify_message, failure_of_phrase
from trainwarden.failures.out_of_memory import suggestion
from trainwarden.failures.records import evidence_in, weighed
from trainwarden.taxonomy import FAILURES, Failure

__all__ = ["classify_exception", "classify_exit", "classify_message", "recovery_suggestion"]

_IN_WORKER = " in DataLoader worker process "


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
        cause = find_cause(_evidence(exc, ambient))
        return FAILURES[(cause and cause.failure) or UNKNOWN]
    except Exception:  # noqa: BLE001  # no exception, however it was made, must hide itself by breaking this
        return FAILURES[UNKNOWN]


def recovery_suggestion(exc: BaseException, *, batch_size: float | None = None) -> str:
    """Return what to change after such an exception, one or two sentences. Never raises.

    Args:
        exc: the exception.
        batch_size: of the training: after a GPU ran full, the one that may fit is suggested.
    """
    failure = classify_exception(exc)
    try:
        return suggestion(failure, text_of(exc, MESSAGE_LIMIT), batch_size)
    except Exception:  # noqa: BLE001  # whatever a message and a batch size are
        return failure.hint


def _evidence(exc: BaseException, ambient: BaseException | None) -> list[Evidence]:
    """Return the evidence in an exception and its chain, in the order in which a traceback prints them."""
    explicit = causes(exc)
    known = {id(link) for link in explicit}
    handled = [link for link in contexts(exc, ambient) if id(link) not in known]
    evidence: list[Evidence] = []
    # What was being handled last is the most likely of them: as if it were printed first.
    for offset, link in enumerate(handled):
        evidence += _of_link(link, offset, context=True)
    for offset, link in enumerate(reversed(explicit), len(handled)):
        evidence += _of_link(link, offset, context=False)
    return evidence


def _of_link(exc: BaseException, offset: int, *, context: bool) -> list[Evidence]:
    """Return the evidence in one exception, without its chain."""
    unknown = Evidence(offset, "fallback", UNKNOWN, exc, context=context)
    by_type = of_type(exc)
    if by_type is None and isinstance(exc, KeyboardInterrupt):
        by_type = Classification("cancelled", sure=True)
    elif by_type is None and isinstance(exc, SystemExit):
        failure = classify_exit(exc.code if isinstance(exc.code, int) else 0)
        by_type = Classification(failure.slug, sure=True) if failure else None
    if by_type and by_type.slug == "host_oom":
        # Without memory nothing else counts, nor could the patterns be loaded.
        return weighed([], unknown, None, by_type, quoting=False)
    text = text_of(exc, MESSAGE_LIMIT)
    found = evidence_in(f"{_printed_type(exc)}: {text}")
    evidence = [
        Evidence(offset, each.role, each.failure, exc, context=context)
        for each in found
        if each.effect is None and each.source.exception_type is None
    ]
    if not evidence and by_type is None and (slug := failure_of_phrase(text)) and not quotes_a_name(exc):
        evidence = [Evidence(offset, "cascade" if FAILURES[slug].cascade else "root", slug, exc, context=context)]
    quoting = quotes_a_name(exc) and _IN_WORKER not in text
    return weighed(evidence, unknown, of_errno(exc), by_type, quoting=quoting)


def _printed_type(exc: BaseException) -> str:
    """Return the type as a traceback prints it."""
    kind = type(exc)
    module = kind.__module__
    return (
        kind.__name__ if module in ("builtins", "__main__") or type(module) is not str else f"{module}.{kind.__name__}"
    )
