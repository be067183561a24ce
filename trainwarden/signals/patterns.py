"""Runs the pattern of one signal on records; users' patterns run under a time limit."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from trainwarden.signals.alternatives import ALTERNATIVES
from trainwarden.signals.expressions import after_gap, alternatives, bounded, reach_of, sees_digits
from trainwarden.signals.model import Signal
from trainwarden.signals.required import Required, covering, is_rare, required_texts

# For one search. A sound pattern takes microseconds; one that is slow three times would stall the node agent.
TIME_LIMIT_SECONDS = 0.25
STRIKES = 3
FIELD_LIMIT = 300
# Of all fields of a match.
FIELDS_LIMIT = 2000

# Where in the record a pattern matches, and the match.
Found = tuple[int, Any]


class PatternTooSlow(Exception):
    """A pattern exceeded its time limit on one record."""


class Pattern(Protocol):
    """A pattern, or one of its alternatives, ready to run.

    Attributes:
        required: texts of which each match holds one; None if unknown.
        reach: the most bytes that a match and what it looks ahead at can span; None where there is no bound.
        sees_digits: records that differ in digits alone may differ in whether it matches.
    """

    required: Required | None
    reach: int | None
    sees_digits: bool

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        """Return where in the record chunk[start:end] the pattern matches, and the match; None if it does not.

        Raises:
            PatternTooSlow: it exceeded its time limit.
        """
        ...


def compiled(signal: Signal) -> tuple[Pattern, ...]:
    """Return what finds the signal, ready to run; raise re.error, or regex.error, if its pattern is invalid."""
    if signal.pattern_type == "substring":
        return (_Substring(signal),)
    if not signal.shipped:
        return (_limited(signal),)
    known = ALTERNATIVES.get((signal.pattern, signal.literals))
    return tuple(_Shipped(*row) for row in known) if known else split(signal)


def split(signal: Signal) -> tuple["_Shipped", ...]:
    """Return the alternatives of a shipped pattern, derived from it."""
    return tuple(
        _Shipped(
            text,
            required.texts if required else None,
            bool(required and required.caseless),
            reach_of(text),
            sees_digits(text),
        )
        for part in alternatives(bounded(signal.pattern))
        for text, required in _parts(signal, part)
    )


def _parts(signal: Signal, pattern: str) -> list[tuple[str, Required | None]]:
    """Return patterns in place of one, as many as have texts of their own after a gap, each with its texts."""
    before, after, texts = after_gap(pattern)
    if len(texts) < 2:
        return [(pattern, _required_of_part(signal, pattern))]
    grouped: dict[Required | None, list[str]] = {}
    for text in texts:
        grouped.setdefault(_required_of_part(signal, f"{before}(?:{text}){after}"), []).append(text)
    return [(f"{before}(?:{'|'.join(group)}){after}", required) for required, group in grouped.items()]


def _required_of_part(signal: Signal, pattern: str) -> Required | None:
    """Return the signal's own texts as far as this part of its pattern needs them, else those that follow from it."""
    derived = required_texts(pattern)
    if not signal.literals:
        return derived
    if own := covering(pattern, signal.literals):
        return Required(own)
    return derived if derived and is_rare(derived.texts) else Required(signal.literals)


def _limited(signal: Signal) -> Pattern:
    re.compile(signal.pattern)  # `re` defines what is valid
    try:
        return _Limited(signal)
    except ImportError:
        return _Unlimited(signal)


def fields_of(signal: Signal, match: Any) -> dict[str, str]:
    """Return the fields of a match that a pattern of the signal found."""
    if match is None:
        return {}
    named = match.re.groupindex
    groups: Mapping[str, str | int] = signal.extract_groups or {name: name for name in named}
    fields: dict[str, str] = {}
    room = FIELDS_LIMIT
    for name, group in groups.items():
        # An alternative has only its own groups.
        value = match.group(group) if isinstance(group, int) or group in named else None
        if value is not None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            fields[name] = text[: min(FIELD_LIMIT, room)]
            room -= len(name) + len(fields[name])
            if room <= 0:
                break
    return fields


def texts_of(patterns: Iterable[Pattern]) -> tuple[tuple[str, ...], bool]:
    """Return texts of which every match of one of the patterns contains one, and whether case is ignored.

    There are none where that is unknown.
    """
    required = [pattern.required for pattern in patterns]
    texts = {text for one in required if one for text in one.texts}
    return (() if None in required else tuple(sorted(texts))), any(one.caseless for one in required if one)


def _required(signal: Signal) -> Required | None:
    return Required(signal.literals) if signal.literals else required_texts(signal.pattern)


class _Substring:
    reach: int | None = None
    sees_digits = True

    def __init__(self, signal: Signal) -> None:
        self._text = signal.pattern.encode()
        self.required: Required | None = Required(signal.literals or (signal.pattern,))

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        at = chunk.find(self._text, start, end)
        return (at - start, None) if at >= 0 else None


class _Shipped:
    """Runs an alternative of a shipped pattern on the bytes in place: no copy, no decoding.

    It is compiled when it is first needed, which for most never happens.
    """

    def __init__(
        self, text: str, texts: tuple[str, ...] | None, caseless: bool, reach: int | None, sees_digits: bool
    ) -> None:
        self.text = text
        self._search: Any = None
        self.required = None if texts is None else Required(texts, caseless)
        self.reach = reach
        self.sees_digits = sees_digits

    @property
    def is_caseless(self) -> bool:
        """Whether the case of the texts is ignored."""
        return self.required is not None and self.required.caseless

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        if self._search is None:
            self._search = re.compile(self.text.encode(), re.MULTILINE).search
        match = self._search(chunk, start, end)
        return (match.start() - start, match) if match else None


class _Unlimited:
    """Runs a user's pattern where `regex` is not installed, without a time limit."""

    reach: int | None = None
    sees_digits = True

    def __init__(self, signal: Signal) -> None:
        self._pattern: Any = re.compile(signal.pattern)
        self.required = _required(signal)

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        match = self._pattern.search(chunk[start:end].decode("utf-8", "replace"))
        return (match.start(), match) if match else None


class _Limited:
    """Runs a user's pattern on the decoded record, under a time limit."""

    reach: int | None = None
    sees_digits = True

    def __init__(self, signal: Signal) -> None:
        import regex  # noqa: PLC0415  # an optional dependency

        self._pattern = regex.compile(signal.pattern)
        self.required = _required(signal)

    def search(self, chunk: bytes, start: int, end: int) -> Found | None:
        text = chunk[start:end].decode("utf-8", "replace")
        try:
            match = self._pattern.search(text, timeout=TIME_LIMIT_SECONDS, concurrent=True)
        except TimeoutError:
            raise PatternTooSlow from None
        return (match.start(), match) if match else None
