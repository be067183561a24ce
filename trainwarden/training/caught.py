"""What is kept of an exception that the training caught: text, for the thing itself keeps tensors alive."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from trainwarden.classify import classify_exception
from trainwarden.record.sentinels import MAX_MESSAGE, MAX_TRACEBACK, shorten
from trainwarden.taxonomy import CATEGORIES, SEVERITIES
from trainwarden.training.requests import Caught

_MAX_LINKS = 10
_MAX_FRAMES = 50


def describe(exc: object, severity: str | None, category: str | None, context: Mapping[str, Any]) -> Caught:
    """The exception as a journal keeps it.

    A severity or category that the taxonomy does not know gives way to the one that it has for such a failure.
    """
    if not isinstance(exc, BaseException):
        # A message alone is better than nothing.
        exc = Exception(exc)
    failure = classify_exception(exc)
    return Caught(
        time=time.time(),
        exception_type=type(exc).__name__,
        message=_message(exc),
        severity=severity if severity in SEVERITIES else failure.severity,
        category=category if category in CATEGORIES else failure.category,
        error_type=failure.error_type,
        failure=failure.slug,
        traceback=shorten("\n".join(_lines(exc)), MAX_TRACEBACK),
        context=context,
    )


def _lines(exc: BaseException) -> list[str]:
    """The trace and those of its causes, without lines of source: those would have to be read from a disk."""
    links: list[BaseException] = []
    link: BaseException | None = exc
    while link is not None and all(link is not one for one in links) and len(links) < _MAX_LINKS:
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    lines = []
    for one in reversed(links):
        lines += ["Traceback (most recent call last):"] if one.__traceback__ else []
        lines += [*_frames(one.__traceback__), f"{type(one).__name__}: {_message(one)}"]
    return lines


def _frames(trace: TracebackType | None) -> list[str]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    left_out = len(frames) - _MAX_FRAMES
    return frames if left_out <= 0 else [f"  … {left_out} frames left out …", *frames[-_MAX_FRAMES:]]


def _message(exc: BaseException) -> str:
    try:
        return shorten(str(exc), MAX_MESSAGE)
    except Exception:  # noqa: BLE001  # the __str__ of a stranger
        return ""
