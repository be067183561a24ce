"""Runs the pattern of one signal on one record; users' patterns run under a time limit."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from trainwarden.failures.records import is_calm
from trainwarden.signals.model import Signal

# For one search. A sound pattern takes microseconds; one that is slow three times would stall the node agent.
TIME_LIMIT_SECONDS = 0.25
STRIKES = 3
FIELD_LIMIT = 300

Found = tuple[int, Mapping[str, str]]


class PatternTooSlow(Exception):
    """A pattern exceeded its time limit on one record."""


class Pattern(Protocol):
    """A pattern, ready to run."""

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        """Return where in the record chunk[start:end] the pattern matches, and its fields; None if it does not.

        Raises:
            PatternTooSlow: it exceeded its time limit.
        """
        ...


def compiled(signal: Signal) -> Pattern:
    """Return the signal's pattern, ready to run; raise re.error, or regex.error, if it is invalid."""
    if signal.pattern_type == "substring":
        pattern: Pattern = _Substring(signal)
    else:
        pattern = _Shipped(signal) if signal.shipped else _limited(signal)
    return _Errors(pattern) if signal.ignore_warnings else pattern


def _limited(signal: Signal) -> Pattern:
    re.compile(signal.pattern)  # `re` defines what is valid
    try:
        return _Limited(signal)
    except ImportError:
        return _Unlimited(signal)


def _fields(signal: Signal, match: Any) -> dict[str, str]:
    groups: Mapping[str, str | int] = signal.extract_groups or {name: name for name in match.re.groupindex}
    fields = {}
    for name, group in groups.items():
        value = match.group(group)
        if value is not None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            fields[name] = text[:FIELD_LIMIT]
    return fields


class _Errors:
    """Runs another pattern, except on records that are warnings."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        found = self._pattern.search(chunk, start, end)
        if found and is_calm(chunk[start:end]):
            return None
        return found


class _Substring:
    def __init__(self, signal: Signal) -> None:
        self._text = signal.pattern.encode()

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        at = chunk.find(self._text, start, end)
        return (at - start, {}) if at >= 0 else None


class _Shipped:
    """Runs a shipped pattern on the bytes in place: no copy, no decoding."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._pattern = re.compile(signal.pattern.encode(), re.MULTILINE)

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        match = self._pattern.search(chunk, start, end)
        return (match.start() - start, _fields(self._signal, match)) if match else None


class _Unlimited:
    """Runs a user's pattern where `regex` is not installed, without a time limit."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._pattern: Any = re.compile(signal.pattern)

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        match = self._pattern.search(chunk[start:end].decode("utf-8", "replace"))
        return (match.start(), _fields(self._signal, match)) if match else None


class _Limited:
    """Runs a user's pattern on the decoded record, under a time limit."""

    def __init__(self, signal: Signal) -> None:
        import regex  # noqa: PLC0415  # an optional dependency

        self._signal = signal
        self._pattern = regex.compile(signal.pattern)

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        text = chunk[start:end].decode("utf-8", "replace")
        try:
            match = self._pattern.search(text, timeout=TIME_LIMIT_SECONDS, concurrent=True)
        except TimeoutError:
            raise PatternTooSlow from None
        return (match.start(), _fields(self._signal, match)) if match else None
