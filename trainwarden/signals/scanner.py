"""Finds the signals of a pack in a stream of bytes, independent of how it is cut into chunks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainwarden.failures.quotation import LINES_BEFORE, is_quoted
from trainwarden.failures.windows import RECORD_LIMIT
from trainwarden.signals.model import Match, Signal
from trainwarden.signals.search import KNOWN_RECORDS, Find, SignalSearch

TEXT_LIMIT = 2000
# Matches of one signal in one chunk: the first are returned one by one, the last one stands for all the others.
SINGLE_MATCHES = 32
# Of the records before one with a match: by them it is decided whether the match is in quoted text.
BEFORE_BYTES = 4096
# Roles whose matches are no accusation.
_HARMLESS = ("confirmation", "event")
_ENDS = (b"\n", b"\r", b"\0")


class Scanner:
    """Searches one stream, record by record; a record ends at a line feed, a carriage return or a NUL.

    Attributes:
        records_cut: how many records were searched in part: too long, or full of texts that patterns require.
        nuls: how many NUL bytes were read: of holes in a file, or of an encoding with more than a byte for a letter.
    """

    def __init__(self, signals: Iterable[Signal]) -> None:
        self._search = SignalSearch(signals)
        self.records_cut = 0
        self.nuls = 0
        self._offset = 0  # of the tail
        self._line = 1
        self._tail = b""
        self._before = b""  # the end of what was searched, whole records
        self._quoted: dict[tuple[int, bytes], bool] = {}  # by place and shape of records
        self._skipping = False  # the tail's record was searched already, up to its limit

    @property
    def off(self) -> Mapping[str, str]:
        """Signals whose pattern exceeded its time limit, by name, with the reason."""
        return self._search.off

    @property
    def slow(self) -> tuple[str, ...]:
        """Names of signals without required texts: their pattern is run on every record."""
        return self._search.slow

    def feed(self, data: bytes) -> list[Match]:
        """Return the matches in the records that `data` completes, in the order of the stream."""
        if self._skipping:
            end = min((end for end in map(data.find, _ENDS) if end >= 0), default=-1)
            if end < 0:
                self._pass(data)
                return []
            self._pass(data[: end + 1])
            self._skipping = False
            data = data[end + 1 :]
        chunk = self._tail + data if self._tail else data
        end = max(map(chunk.rfind, _ENDS)) + 1
        matches = self._matches(chunk[:end])
        self._tail = chunk[end:]
        if len(self._tail) > RECORD_LIMIT:
            matches += self._matches(self._tail)
            self._tail, self._skipping = b"", True
        return matches

    def finish(self) -> list[Match]:
        """Return the matches in the unfinished last record. The stream may go on with a new record."""
        matches = self._matches(self._tail)
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
        for name, why in state.get("off", {}).items():
            self._search.switch_off(name, str(why))

    def _pass(self, data: bytes) -> None:
        self._offset += len(data)
        self._line += data.count(b"\n")
        self.nuls += data.count(b"\0")

    def _matches(self, chunk: bytes) -> list[Match]:
        """Return the matches in a chunk of whole records, and pass it."""
        if not chunk:
            return []
        # Expressions treat only a line feed as an end.
        text = chunk.replace(b"\r", b"\n").replace(b"\0", b"\n")
        finds, cut = self._search.search(text)
        self.records_cut += cut
        finds = [find for find in finds if find.part.signal.role in _HARMLESS or not self._is_quoted(text, find)]
        finds = _without_repeated(finds)
        matches, line, counted = [], self._line, 0
        totals = Counter(find.part.index for find in finds)
        seen: Counter[int] = Counter()
        for find in finds:
            index = find.part.index
            seen[index] += 1
            count = 1
            if seen[index] > SINGLE_MATCHES:
                if seen[index] < totals[index]:
                    continue
                count = totals[index] - SINGLE_MATCHES
            line += chunk.count(b"\n", counted, find.start)
            counted = find.start
            matches.append(
                Match(find.part.signal, self._offset + find.start, line, find.record(TEXT_LIMIT), find.fields(), count)
            )
        self._pass(chunk)
        self._before = (self._before + text[-BEFORE_BYTES:])[-BEFORE_BYTES:]
        if not text.endswith(b"\n"):
            self._before += b"\n"
        return matches

    def _is_quoted(self, text: bytes, find: Find) -> bool:
        """Return whether a match is in code, a command, arguments or a configuration that the log quotes."""
        key = find.shape(BEFORE_BYTES)
        known = self._quoted.get(key)
        if known is not None:
            return known
        lines = _LinesBefore(self._before, text, find.start)
        quoted = is_quoted(*find.place(BEFORE_BYTES), lines)
        if not lines.was_read:
            # It follows from the record itself; in a storm most differ in digits alone.
            self._quoted[key] = quoted
            if len(self._quoted) > KNOWN_RECORDS:
                del self._quoted[next(iter(self._quoted))]
        return quoted


def _without_repeated(finds: list[Find]) -> list[Find]:
    """Return the finds without shipped ones of a failure for which the same record holds a root: it is counted once."""
    roots = {(find.start, find.part.signal.failure) for find in finds if find.part.signal.role == "root"}
    return [
        find
        for find in finds
        if not find.part.signal.shipped
        or find.part.signal.role not in ("symptom", "fallback")
        or (find.start, find.part.signal.failure) not in roots
    ]


class _LinesBefore(Sequence[str]):
    """The lines before a record, decoded if they are needed, which is rare."""

    def __init__(self, before: bytes, text: bytes, start: int) -> None:
        self._before, self._text, self._start = before, text, start
        self._lines: list[str] | None = None

    @property
    def was_read(self) -> bool:
        return self._lines is not None

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def _read(self) -> list[str]:
        if self._lines is None:
            near = self._text[max(0, self._start - BEFORE_BYTES) : self._start]
            if len(near) < BEFORE_BYTES:
                near = (self._before + near)[-BEFORE_BYTES:]
            self._lines = near.decode("utf-8", "replace").split("\n")[:-1][-LINES_BEFORE:]
        return self._lines
