"""The lines of `events.jsonl` and `errors.jsonl`, before they are encoded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from trainwarden.classify import classify_exception
from trainwarden.record.schema import MAX_MESSAGE, shorten
from trainwarden.record.sentinels import MAX_TRACEBACK
from trainwarden.taxonomy import CATEGORIES, SEVERITIES

_MAX_CHAINED = 10
_MAX_FRAMES = 50


@dataclass(frozen=True)
class RunEvent:
    """A line of `events.jsonl`. `time` is Unix seconds; `data` holds JSON values only."""

    time: float
    event: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaughtError:
    """A line of `errors.jsonl`: an exception that the training caught. `time` is Unix seconds."""

    time: float
    exception_type: str
    message: str
    severity: str
    category: str
    error_type: str
    failure: str
    traceback: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)


def describe_error(exc: object, severity: str | None, category: str | None, context: Mapping[str, Any]) -> CaughtError:
    """Return the exception as text: the exception object itself would keep tensors alive.

    Args:
        exc: the exception; anything else is taken as its message.
        severity: one of the taxonomy's; else that of the classified failure.
        category: one of the taxonomy's; else that of the classified failure.
        context: what the training adds.
    """
    if not isinstance(exc, BaseException):
        exc = Exception(exc)
    failure = classify_exception(exc)
    return CaughtError(
        time=time.time(),
        exception_type=type(exc).__name__,
        message=_message(exc),
        severity=severity if severity in SEVERITIES else failure.severity,
        category=category if category in CATEGORIES else failure.category,
        error_type=failure.error_type,
        failure=failure.slug,
        traceback=shorten("\n".join(_traceback_lines(exc)), MAX_TRACEBACK),
        context=context,
    )


def _traceback_lines(exc: BaseException) -> list[str]:
    """Return the traceback and those of its causes, without source lines, which would be read from a disk."""
    chain: list[BaseException] = []
    link: BaseException | None = exc
    while link is not None and all(link is not one for one in chain) and len(chain) < _MAX_CHAINED:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    lines = []
    for one in reversed(chain):
        lines += ["Traceback (most recent call last):"] if one.__traceback__ else []
        lines += [*_frames(one.__traceback__), f"{type(one).__name__}: {_message(one)}"]
    return lines


def _frames(trace: TracebackType | None) -> list[str]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    omitted = len(frames) - _MAX_FRAMES
    return frames if omitted <= 0 else [f"  … {omitted} frames left out …", *frames[-_MAX_FRAMES:]]


def _message(exc: BaseException) -> str:
    try:
        return shorten(str(exc), MAX_MESSAGE)
    except Exception:  # noqa: BLE001  # the __str__ of a user's class
        return ""
