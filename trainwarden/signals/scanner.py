"""Finds the signals of a pack in a stream of bytes, independent of how it is cut into chunks."""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainwarden.failures.quotation import LINES_BEFORE, is_quoted
from trainwarden.signals.literals import Literals, literals
from trainwarden.signals.model import Match, Signal
from trainwarden.signals.patterns import STRIKES, TIME_LIMIT_SECONDS, Pattern, PatternTooSlow, compiled
from trainwarden.signals.required import required_texts

# A record is searched this far; the rest is skipped and counted.
RECORD_LIMIT = 64 * 1024
TEXT_LIMIT = 2000
# Of the records before one with a match: by them it is decided whether the match is in quoted text.
BEFORE_BYTES = 4096
# Roles whose matches are no accusation.
_HARMLESS = ("confirmation", "event")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")

_log = logging.getLogger(__name__)


class Scanner:
    """Searches one stream, record by record; a record ends at a line feed or a carriage return.

    Attributes:
        records_cut: how many records were longer than `RECORD_LIMIT`.
        off: signals whose pattern exceeded its time limit, by name, with the reason.
        slow: names of signals without required texts: their pattern is run on every record.
    """

    def __init__(self, signals: Iterable[Signal]) -> None:
        self._signals = tuple(signals)
        self._patterns: list[Pattern | None] = [compiled(signal) for signal in self._signals]
        self._strikes = [0] * len(self._signals)
        self._stages, everywhere = _stages(self._signals)
        self._everywhere = tuple(everywhere)
        self.slow = tuple(self._signals[index].name for index in everywhere)
        self.off: dict[str, str] = {}
        self.records_cut = 0
        self._offset = 0  # of the tail
        self._line = 1
        self._tail = b""
        self._before = b""  # the end of what was searched, whole records
        self._skipping = False  # the tail's record was searched already, up to its limit

    def feed(self, data: bytes) -> list[Match]:
        """Return the matches in the records that `data` completes, in the order of the stream."""
        if self._skipping:
            end = _first_end(data, 0)
            if end < 0:
                self._pass(data)
                return []
            self._pass(data[: end + 1])
            self._skipping = False
            data = data[end + 1 :]
        chunk = self._tail + data if self._tail else data
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        matches = self._search(chunk, end)
        self._pass(chunk[:end])
        self._tail = chunk[end:]
        if len(self._tail) > RECORD_LIMIT:
            matches += self._search(self._tail, len(self._tail))
            self._pass(self._tail)
            self._tail, self._skipping = b"", True
        return matches

    def finish(self) -> list[Match]:
        """Return the matches in the unfinished last record. The stream may go on with a new record."""
        matches = self._search(self._tail, len(self._tail))
        self._pass(self._tail)
        self._tail, self._skipping = b"", False
        return matches

    def state(self) -> dict[str, Any]:
        """Return a state for JSON; after a restart, `restore` it and read on from its `offset`."""
        before = self._before.decode("latin-1")
        return {
            "offset": self._offset, "line": self._line, "skipping": self._skipping, "off": dict(self.off),
            "before": before,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state()`; the next byte fed must be the one at its `offset`."""
        self._offset, self._line = int(state["offset"]), int(state["line"])
        self._skipping, self._tail = bool(state["skipping"]), b""
        self._before = str(state.get("before", "")).encode("latin-1", "replace")
        for index, signal in enumerate(self._signals):
            if signal.name in state.get("off", {}):
                self._switch_off(index, str(state["off"][signal.name]))

    def _pass(self, data: bytes) -> None:
        self._offset += len(data)
        self._line += data.count(b"\n")

    def _search(self, chunk: bytes, length: int) -> list[Match]:
        if not length:
            return []
        # Expressions treat only a line feed as an end.
        text = chunk[:length].replace(b"\r", b"\n")
        found: dict[tuple[int, int], tuple[int, int, Mapping[str, str]]] = {}
        for stage in self._stages:
            stage.search(text, self, found)
        if self._everywhere:
            self._search_every_record(text, found)
        if len(text) > RECORD_LIMIT:
            self.records_cut += _count_cut(text)
        matches = self._matches(chunk, text, found)
        self._before = (self._before + text[-BEFORE_BYTES:])[-BEFORE_BYTES:]
        if not text.endswith(b"\n"):
            self._before += b"\n"
        return matches

    def _search_every_record(self, text: bytes, found: "_Found") -> None:
        start = 0
        while start < len(text):
            end = text.find(b"\n", start)
            end = len(text) if end < 0 else end
            if end > start:
                for index in self._everywhere:
                    self.test(index, text, start, min(end, start + RECORD_LIMIT), found)
            start = end + 1

    def test(self, index: int, text: bytes, start: int, end: int, found: "_Found") -> None:
        """Run one signal's pattern on one record and keep what it finds."""
        pattern = self._patterns[index]
        if pattern is None:
            return
        try:
            hit = pattern.search(text, start, end)
            if hit is None and text.find(b"\x1b[", start, end) >= 0:
                # Escape sequences stand where a pattern expects the beginning of the line, or between two words.
                plain = _COLOUR.sub(b"", text[start:end])
                hit = pattern.search(plain, 0, len(plain))
        except PatternTooSlow:
            self._strikes[index] += 1
            if self._strikes[index] >= STRIKES:
                self._switch_off(index, f"{STRIKES} records took longer than {TIME_LIMIT_SECONDS} s each")
            return
        if hit is not None:
            found[start, index] = (end, *hit)

    def _switch_off(self, index: int, why: str) -> None:
        signal = self._signals[index]
        self._patterns[index] = None
        self.off[signal.name] = why
        _log.error("%s: signal %s is off: %s; pattern %r", signal.source, signal.name, why, signal.pattern)

    def _matches(self, chunk: bytes, text: bytes, found: "_Found") -> list[Match]:
        matches, line, counted = [], self._line, 0
        for (start, index), (end, at, fields) in sorted(found.items(), key=lambda item: item[0]):
            line += chunk.count(b"\n", counted, start)
            counted = start
            if self._signals[index].role not in _HARMLESS and self._is_quoted(text, start, end, at):
                continue
            record = text[start:end]
            # Keep the text around the match: the beginning of a long record is rarely needed.
            first = max(0, at - TEXT_LIMIT // 2) if len(record) > TEXT_LIMIT else 0
            shown = record[first : first + TEXT_LIMIT].decode("utf-8", "replace")
            matches.append(Match(self._signals[index], self._offset + start, line, shown, fields))
        return matches

    def _is_quoted(self, text: bytes, start: int, end: int, at: int) -> bool:
        """Return whether a match is in code, a command, arguments or a configuration that the log quotes."""
        before = text[max(0, start - BEFORE_BYTES) : start]
        if len(before) < BEFORE_BYTES:
            before = (self._before + before)[-BEFORE_BYTES:]
        lines = before.decode("utf-8", "replace").split("\n")[:-1][-LINES_BEFORE:]
        record = text[start : min(end, start + BEFORE_BYTES)].decode("utf-8", "replace")
        return is_quoted(record, len(text[start : start + at].decode("utf-8", "replace")), lines)


_Found = dict[tuple[int, int], tuple[int, int, Mapping[str, str]]]


class _Stage:
    """Literals, and the signals that require each of them."""

    def __init__(self, texts: Mapping[bytes, list[int]], caseless: bool) -> None:
        self._literals: Literals = literals(list(texts))
        self._signals = [tuple(indexes) for indexes in texts.values()]
        self._caseless = caseless

    def search(self, text: bytes, scanner: Scanner, found: _Found) -> None:
        start, end = 0, -1
        tested: set[int] = set()
        for literal, at, _ in self._literals.find(text.lower() if self._caseless else text):
            if not start <= at < end:
                bounds = _record(text, at)
                if bounds is None:
                    continue
                if bounds[0] != start or end < 0:
                    tested.clear()
                start, end = bounds
            for index in self._signals[literal]:
                if index not in tested:
                    tested.add(index)
                    scanner.test(index, text, start, end, found)


def _record(text: bytes, at: int) -> tuple[int, int] | None:
    """Return the bounds of the record around a position; None beyond the part that is searched."""
    least = max(0, at - RECORD_LIMIT)
    start = text.rfind(b"\n", least, at) + 1
    if start == 0 and least > 0:
        return None
    end = text.find(b"\n", at, start + RECORD_LIMIT)
    return start, (end if end >= 0 else min(len(text), start + RECORD_LIMIT))


def _first_end(data: bytes, start: int) -> int:
    ends = [end for end in (data.find(b"\n", start), data.find(b"\r", start)) if end >= 0]
    return min(ends, default=-1)


def _count_cut(text: bytes) -> int:
    cut, start = 0, 0
    while len(text) - start > RECORD_LIMIT:
        end = text.rfind(b"\n", start, start + RECORD_LIMIT + 1)
        if end < 0:
            cut += 1
            end = text.find(b"\n", start)
            if end < 0:
                break
        start = end + 1
    return cut


def _stages(signals: tuple[Signal, ...]) -> tuple[list[_Stage], list[int]]:
    exact: dict[bytes, list[int]] = {}
    caseless: dict[bytes, list[int]] = {}
    everywhere = []
    for index, signal in enumerate(signals):
        texts, any_case = texts_of(signal)
        for text in texts:
            (caseless if any_case else exact).setdefault(text.encode(), []).append(index)
        if not texts:
            everywhere.append(index)
    stages = [_Stage(texts, any_case) for texts, any_case in ((exact, False), (caseless, True)) if texts]
    return stages, everywhere


def texts_of(signal: Signal) -> tuple[tuple[str, ...], bool]:
    """Return texts of which every match contains one, and whether case is ignored; none where unknown."""
    if signal.literals:
        return signal.literals, False
    if signal.pattern_type == "substring":
        return (signal.pattern,), False
    required = required_texts(signal.pattern)
    return (required.texts, required.caseless) if required else ((), False)
