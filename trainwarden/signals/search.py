"""Runs the patterns of all signals on the records of a text: each only near the texts that it requires."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from trainwarden.failures.records import is_calm
from trainwarden.failures.windows import (
    ESCAPE_SEQUENCE,
    RECORD_LIMIT,
    RECORD_SECONDS,
    SEARCH_LIMIT,
    SHORT_RECORD,
    SearchBudget,
    extend,
    windows,
)
from trainwarden.signals.literals import Literals, literals
from trainwarden.signals.model import Signal
from trainwarden.signals.patterns import (
    STRIKES,
    TIME_LIMIT_SECONDS,
    Pattern,
    PatternTooSlow,
    compiled,
    fields_of,
)

# Bytes between texts of one kind that are searched as one stretch.
NEAR = 256
# Records whose finds are remembered.
KNOWN_RECORDS = 512
_SHAPE = bytes.maketrans(b"123456789", b"000000000")

# Written in an expression that is meant for text with its escape sequences.
_ESCAPE = re.compile(r"\x1b|\\(?:x1b|u001b|033|N\{ESC)", re.IGNORECASE)
_ESCAPE_BYTE = b"\x1b"
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)

_log = logging.getLogger(__name__)


class Find:
    """A signal that was found in a record.

    Attributes:
        part: the alternative of its pattern that was found first.
        start: of the record, in the text that was searched.
        at: where in the record it was found.
    """

    __slots__ = ("_end", "_text", "at", "part", "start")

    def __init__(self, part: "_Part", text: bytes, start: int, end: int, at: int) -> None:
        self.part, self.start, self.at = part, start, at
        self._text, self._end = text, end

    def fields(self) -> dict[str, str]:
        """Return the fields of the signal."""
        # Searched again from there: of a storm few are wanted.
        high = self._end if self.part.reach is None else min(self._end, self.start + self.at + self.part.reach)
        low = self.start if self.part.reach is None else self.start + self.at
        found = self.part.pattern.search(self._text, low, high)
        return fields_of(self.part.signal, found[1] if found else None)

    def record(self, limit: int) -> str:
        """Return the record, or the text around what was found: the beginning of a long record is rarely needed."""
        first = self.start
        if self._end - first > limit:
            first += max(0, self.at - limit // 2)
        return self._text[first : min(self._end, first + limit)].decode("utf-8", "replace")

    def shape(self, limit: int) -> tuple[int, bytes]:
        """Return the place in the record, and the record with all digits alike, cut."""
        return self.at, self._text[self.start : min(self._end, self.start + limit)].translate(_SHAPE)

    def place(self, limit: int) -> tuple[str, int]:
        """Return the record, cut, and the place in it, in characters."""
        record = self._text[self.start : min(self._end, self.start + limit)]
        return record.decode("utf-8", "replace"), len(record[: self.at].decode("utf-8", "replace"))


class _Part:
    """One alternative of a signal's pattern."""

    __slots__ = ("index", "number", "pattern", "reach", "required", "sees_digits", "signal")

    def __init__(self, number: int, index: int, signal: Signal, pattern: Pattern) -> None:
        self.number, self.index, self.signal, self.pattern = number, index, signal, pattern
        self.reach, self.required, self.sees_digits = pattern.reach, pattern.required, pattern.sees_digits


class SignalSearch:
    """The signals of a pack, compiled.

    Args:
        signals: to look for.
        record_seconds: processor time for one long record.
        search_limit: bytes that patterns are run on in one long record.

    Attributes:
        off: signals whose pattern exceeded its time limit, by name, with the reason.
        slow: names of signals without required texts: their pattern is run on every record.
    """

    def __init__(
        self,
        signals: Iterable[Signal],
        *,
        record_seconds: float = RECORD_SECONDS,
        search_limit: float = SEARCH_LIMIT,
    ) -> None:
        self.record_seconds, self.search_limit = record_seconds, search_limit
        self.signals = tuple(signals)
        patterns = [(index, each) for index, signal in enumerate(self.signals) for each in compiled(signal)]
        parts = [_Part(number, index, self.signals[index], each) for number, (index, each) in enumerate(patterns)]
        escaped = [part for part in parts if _ESCAPE.search(part.signal.pattern)]
        self._escaped = _stages(escaped)
        self._plain = _stages([part for part in parts if part not in escaped])
        self._everywhere = [part for part in parts if part.required is None]
        self.slow = tuple(dict.fromkeys(part.signal.name for part in self._everywhere))
        self.off: dict[str, str] = {}
        self._strikes = [0] * len(self.signals)

    def search(self, text: bytes) -> tuple[list[Find], int]:
        """Return what is found in the records of a text, in its order, and how many records were searched in part.

        Records end at line feeds. A signal is found once in a record.
        """
        finds = _Finds(self)
        for stage in self._escaped:
            stage.search(text, finds)
        plain = _without_escapes(text)
        for stage in self._plain:
            stage.search(plain, finds)
        if self._everywhere:
            self._search_every_record(plain, finds)
        if len(text) > RECORD_LIMIT:
            finds.cut.update(_too_long(text))
        return finds.in_order(), len(finds.cut)

    def switch_off(self, name: str, why: str) -> None:
        """Run the patterns of a signal no more."""
        signal = next((one for one in self.signals if one.name == name), None)
        if signal is not None and name not in self.off:
            self.off[name] = why
            _log.error("%s: signal %s is off: %s; pattern %.200r", signal.source, name, why, signal.pattern)

    def strike(self, part: _Part) -> None:
        """Count a search that took too long; the last of some switches its signal off."""
        self._strikes[part.index] += 1
        if self._strikes[part.index] >= STRIKES:
            self.switch_off(part.signal.name, f"{STRIKES} records took longer than {TIME_LIMIT_SECONDS} s each")

    def _search_every_record(self, text: bytes, finds: "_Finds") -> None:
        start = 0
        while start < len(text):
            end = text.find(b"\n", start)
            end = len(text) if end < 0 else end
            if end > start:
                stop = min(end, start + RECORD_LIMIT)
                finds.test(self._everywhere, text, start, stop)
            start = end + 1


class _Finds:
    """What was found in one text; tests records for it.

    Attributes:
        cut: where records begin that were not searched to their end.
    """

    def __init__(self, search: SignalSearch) -> None:
        self._search = search
        self._finds: dict[tuple[int, int], Find] = {}
        self.cut: set[int] = set()

    def in_order(self) -> list[Find]:
        return [find for _, find in sorted(self._finds.items(), key=lambda item: item[0])]

    def test(self, parts: Iterable[_Part], text: bytes, start: int, end: int) -> tuple[tuple[_Part, int], ...]:
        """Test a record as a whole; return which parts are found, and where in it."""
        found = [(part, self._test(part, text, start, end)) for part in parts]
        for part, at in found:
            if at is not None:
                self.add(part, text, start, end, at)
        return tuple((part, at) for part, at in found if at is not None)

    def _test(self, part: _Part, text: bytes, start: int, end: int) -> int | None:
        if part.signal.name in self._search.off:
            return None
        try:
            found = part.pattern.search(text, start, end)
        except PatternTooSlow:
            self._search.strike(part)
            return None
        if found is None or (part.signal.ignore_warnings and is_calm(text, start, end, start + found[0])):
            return None
        return found[0]

    def add(self, part: _Part, text: bytes, start: int, end: int, at: int) -> None:
        """Add what was found, unless another part of the signal was found before it in the record."""
        key = start, part.index
        known = self._finds.get(key)
        if known is None or (at, part.number) < (known.at, known.part.number):
            self._finds[key] = Find(part, text, start, end, at)

    def test_near(self, stretches: "_Stretches", text: bytes, start: int, end: int) -> None:
        """Test a long record near the texts that were found in it, as far as the limits allow."""
        budget = SearchBudget(self._search.search_limit, self._search.record_seconds)
        # What is everywhere in the record must not keep the rest from being found.
        for part, places in sorted(stretches.items(), key=lambda item: sum(last - first for first, last in item[1])):
            for low, high, last in windows(places, part.reach or 0, start, end):
                if not budget.allows(high - low):
                    self.cut.add(start)
                    return
                if self._test_stretch(part, text, (start, end), low, high, last):
                    break

    def _test_stretch(self, part: _Part, text: bytes, record: tuple[int, int], low: int, high: int, last: int) -> bool:
        """Return whether the part is found in text[low:high], beginning at `last` at the latest."""
        start, end = record
        found = part.pattern.search(text, low, high)
        # What begins behind the last text only seems to match, at the end of the stretch.
        if found is None or (low + found[0] > last and high < end):
            return False
        at = low + found[0]
        if part.signal.ignore_warnings and is_calm(text, start, end, at):
            return False
        self.add(part, text, start, end, at - start)
        return True


class _Known:
    """The finds in the last few records of the same text."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[tuple[_Part, int], ...]] = {}

    def test(self, key: bytes, parts: Iterable[_Part], finds: _Finds, text: bytes, start: int, end: int) -> None:
        """Test a record, or take what was found in another of the same key."""
        found = self._found.get(key)
        if found is None:
            self._found[key] = finds.test(parts, text, start, end)
            if len(self._found) > KNOWN_RECORDS:
                del self._found[next(iter(self._found))]
            return
        for part, at in found:
            finds.add(part, text, start, end, at)


# First and last hit of each group of hits near each other.
_Stretches = dict[_Part, list[list[int]]]


class _Stage:
    """Literals, and the parts that require each of them."""

    def __init__(self, texts: Mapping[bytes, Sequence[_Part]], caseless: bool) -> None:
        self._literals: Literals = literals(list(texts))
        self._parts = [frozenset(parts) for parts in texts.values()]
        self._caseless = caseless
        # Of parts that see no digits, and of the others.
        self._shapes, self._records = _Known(), _Known()

    def search(self, text: bytes, finds: _Finds) -> None:
        start, end, beyond, is_short = 0, -1, 0, True
        tested: set[_Part] = set()  # of a short record: those whose texts are in it
        places: dict[int, list[list[int]]] = {}  # of a long record: where each text is
        for literal, at, _ in self._literals.find(text.lower() if self._caseless else text):
            if not start <= at < end:
                if at < beyond:
                    continue
                self._test(text, start, end, tested, self._stretches(places, tested), finds)
                tested, places = set(), {}
                start, end = _record(text, at)
                if end < 0:
                    beyond = text.find(b"\n", at)
                    beyond = len(text) if beyond < 0 else beyond
                    continue
                is_short = end - start <= SHORT_RECORD
            if is_short:
                tested |= self._parts[literal]
                continue
            extend(places.setdefault(literal, []), at, at, NEAR)
        self._test(text, start, end, tested, self._stretches(places, tested), finds)

    def _stretches(self, places: Mapping[int, list[list[int]]], tested: set[_Part]) -> _Stretches:
        """Return where to search for each part; those that are searched everywhere are added to `tested`."""
        found: dict[_Part, list[list[int]]] = {}
        for literal, stretches in places.items():
            for part in self._parts[literal]:
                if part.reach is None:
                    tested.add(part)
                else:
                    found.setdefault(part, []).extend(stretches)
        joined: _Stretches = {}
        for part, stretches in found.items():
            for first, last in sorted(stretches):
                extend(joined.setdefault(part, []), first, last, 2 * (part.reach or 0))
        return joined

    def _test(
        self, text: bytes, start: int, end: int, parts: set[_Part], stretches: "_Stretches", finds: _Finds
    ) -> None:
        """Test a record for the parts whose texts it holds."""
        if stretches:
            finds.test_near(stretches, text, start, end)
        if not parts:
            return
        seeing = {part for part in parts if part.sees_digits}
        if end - start > SHORT_RECORD:
            finds.test(parts, text, start, end)
            return
        # In a storm most records differ in digits alone, or not at all.
        record = text[start:end]
        if len(seeing) < len(parts):
            self._shapes.test(record.translate(_SHAPE), parts - seeing, finds, text, start, end)
        if seeing:
            self._records.test(record, seeing, finds, text, start, end)


def _record(text: bytes, at: int) -> tuple[int, int]:
    """Return the bounds of the record around a position; (0, -1) beyond the part that is searched."""
    least = max(0, at - RECORD_LIMIT)
    start = text.rfind(b"\n", least, at) + 1
    if start == 0 and least > 0:
        return 0, -1
    end = text.find(b"\n", at, start + RECORD_LIMIT)
    return start, (end if end >= 0 else min(len(text), start + RECORD_LIMIT))


def _too_long(text: bytes) -> list[int]:
    """Return where the records begin that are longer than what is searched of one."""
    found, start = [], 0
    while len(text) - start > RECORD_LIMIT:
        end = text.rfind(b"\n", start, start + RECORD_LIMIT + 1)
        if end < 0:
            found.append(start)
            end = text.find(b"\n", start)
            if end < 0:
                break
        start = end + 1
    return found


def _stages(parts: Iterable[_Part]) -> list[_Stage]:
    exact: dict[bytes, list[_Part]] = {}
    caseless: dict[bytes, list[_Part]] = {}
    for part in parts:
        if part.required is not None:
            for text in part.required.texts:
                (caseless if part.required.caseless else exact).setdefault(text.encode(), []).append(part)
    return [_Stage(texts, any_case) for texts, any_case in ((exact, False), (caseless, True)) if texts]


def _without_escapes(text: bytes) -> bytes:
    """Return the text with its sequences removed; each line begins where it began, empty lines fill the gaps."""
    at = text.find(_ESCAPE_BYTE)
    if at < 0:
        return text
    parts: list[bytes] = []
    done = 0
    while at >= 0:
        start = text.rfind(b"\n", done, at) + 1 or done
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        plain = _ESCAPE_SEQUENCE.sub(b"", text[start:end])
        parts += [text[done:start], plain, b"\n" * (end - start - len(plain))]
        done = end
        at = text.find(_ESCAPE_BYTE, end)
    return b"".join((*parts, text[done:]))
