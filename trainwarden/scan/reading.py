"""Reads one log to its end: what matched, and how far the training was, in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainwarden.scan.context import Context, Contexts
from trainwarden.scan.source import Source, Unreadable
from trainwarden.signals.diagnosis import STEPS_THAT_PROVE_LIFE
from trainwarden.signals.model import Match
from trainwarden.signals.progress import Progress, ProgressReader
from trainwarden.signals.scanner import Scanner

# Progress is read fastest in large pieces; signals are where a piece stays in the processor's cache.
PIECE_BYTES = 1024 * 1024
SEARCH_BYTES = 256 * 1024
# Of each signal the first ones, among them the cause, and the last ones.
FIRST, LAST = 32, 32
# In so many parts a piece is read again to find where in it the steps were.
_PARTS = 1024
_LEAST_PART, _LARGEST_PART = 128, 4096


@dataclass
class Log:
    """What is in one log.

    Attributes:
        name: as typed.
        matches: in the order of the log; of a signal with many, the first and the last ones.
        counts: how often each signal was found, by name.
        moves: where a step higher than all before was reported, the last few.
        contexts: the lines around a match, by its offset.
        trouble: why the log was not read, or not to its end.
        is_unread: nothing of it could be read.
    """

    name: str
    matches: list[Match] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    contexts: dict[int, Context] = field(default_factory=dict)
    trouble: str | None = None
    is_unread: bool = False


def read_log(
    name: str,
    source: Source,
    scanner: Scanner,
    *,
    with_context: bool = False,
    tell: Callable[[int], None] = lambda _: None,
) -> Log:
    """Read a log to its end, or to where it can't be read any more.

    Args:
        name: as typed.
        source: what to read.
        scanner: at the beginning of a stream.
        with_context: keep the lines around each match.
        tell: is called after each piece with how many bytes of the file were read.
    """
    kept, steps, contexts = _Kept(), _Steps(), Contexts() if with_context else None
    trouble = None
    while True:
        try:
            piece = source.read(PIECE_BYTES)
        except Unreadable as error:
            trouble, piece = str(error), b""
        for start in range(0, len(piece), SEARCH_BYTES):
            part = piece[start : start + SEARCH_BYTES]
            matches = scanner.feed(part)
            kept.add(matches)
            if contexts:
                contexts.feed(part, matches)
        if not piece:
            break
        steps.feed(piece)
        tell(source.position())
    matches = scanner.finish()
    kept.add(matches)
    steps.finish()
    log = Log(name, kept.matches(), kept.counts, trouble=trouble, progress=steps.reader.progress())
    if contexts:
        log.contexts = contexts.finish(matches, log.matches)
    if log.matches:
        log.moves = steps.moves()
    return log


class _Kept:
    """The first and the last matches of each signal."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._first: dict[str, list[Match]] = {}
        self._last: dict[str, deque[Match]] = {}

    def add(self, matches: Iterable[Match]) -> None:
        for match in matches:
            name = match.signal.name
            count = self.counts[name] = self.counts.get(name, 0) + 1
            if count <= FIRST:
                self._first.setdefault(name, []).append(match)
            else:
                self._last.setdefault(name, deque(maxlen=LAST)).append(match)

    def matches(self) -> list[Match]:
        every = [*self._first.values(), *self._last.values()]
        return sorted((match for some in every for match in some), key=lambda match: match.offset)


class _Steps:
    """How far the training was, and where in the log the last steps were that were higher than all before."""

    def __init__(self) -> None:
        self.reader = ProgressReader()
        self._state = self.reader.state()
        self._unread = b""  # of a record that is not complete yet
        self._high: int | None = None
        self._risen: deque[tuple[dict[str, Any], bytes]] = deque(maxlen=STEPS_THAT_PROVE_LIFE)

    def feed(self, piece: bytes) -> None:
        before, data = self._state, self._unread + piece
        self.reader.feed(piece)
        self._state = self.reader.state()
        self._unread = data[self._state["offset"] - before["offset"] :]
        high = self.reader.progress().high_water
        if high is not None and (self._high is None or high > self._high):
            self._risen.append((before, data))
            self._high = high

    def finish(self) -> None:
        self.feed(b"\n")

    def moves(self) -> list[int]:
        """Offsets, rounded down a little; reads the pieces again in which they are, from the last one on."""
        moves: list[int] = []
        for before, data in reversed(self._risen):
            moves = [*_rises(before, data), *moves]
            if len(moves) >= STEPS_THAT_PROVE_LIFE:
                break
        return moves[-STEPS_THAT_PROVE_LIFE:]


def _rises(before: dict[str, Any], data: bytes) -> list[int]:
    reader = ProgressReader()
    reader.restore(before)
    high, moves = reader.progress().high_water, []
    size = min(max(len(data) // _PARTS, _LEAST_PART), _LARGEST_PART)
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        reached = reader.progress().high_water
        if reached is not None and (high is None or reached > high):
            high = reached
            moves.append(before["offset"] + start)
    return moves
