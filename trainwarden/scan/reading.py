"""Reads one log to its end: matches and the training's progress, in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainwarden.failures.windows import RECORD_LIMIT
from trainwarden.scan.context import ContextLines, Contexts
from trainwarden.scan.source import Source, UnreadableLog
from trainwarden.signals.diagnosis import STEPS_THAT_PROVE_LIFE
from trainwarden.signals.model import Match
from trainwarden.signals.progress import LogProgress, ProgressReader
from trainwarden.signals.progress.rises import last_rises
from trainwarden.signals.scanner import Scanner

# Progress is read fastest in large pieces, signals in pieces that fit the processor's cache.
PIECE_BYTES = 1024 * 1024
SEARCH_BYTES = 256 * 1024
# Matches kept for each signal: the first ones, among them the cause, and the last ones.
FIRST, LAST = 32, 32
# Fewer NULs are what programs print now and then.
NULS = 16


@dataclass
class Log:
    """The content of one log.

    Attributes:
        name: as typed.
        matches: in the order of the log; of a signal with many, the first and the last ones.
        counts: how often each signal was found, by name.
        moves: offsets of the last few steps that were higher than all before.
        contexts: the lines around a match, by its offset.
        error: why the log was not read, or not to its end.
        blind: what of it was read, but not searched; None if nothing.
        is_unread: nothing of it could be read.
    """

    name: str
    matches: list[Match] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)
    progress: LogProgress = field(default_factory=LogProgress)
    contexts: dict[int, ContextLines] = field(default_factory=dict)
    error: str | None = None
    blind: str | None = None
    is_unread: bool = False


def read_log(
    name: str,
    source: Source,
    scanner: Scanner,
    *,
    with_context: bool = False,
    on_read: Callable[[int], None] = lambda _: None,
) -> Log:
    """Read a log to its end, or to where it can't be read any more.

    Args:
        name: as typed.
        source: what to read.
        scanner: at the beginning of a stream.
        with_context: keep the lines around each match.
        on_read: called after each piece with the number of bytes of the file that were read.
    """
    kept, steps, contexts = _FirstAndLast(), _Steps(), Contexts() if with_context else None
    cut_before, nuls_before = scanner.records_cut, scanner.nuls
    failure = None
    while True:
        try:
            piece = source.read(PIECE_BYTES)
        except UnreadableLog as error:
            failure, piece = str(error), b""
        for start in range(0, len(piece), SEARCH_BYTES):
            part = piece[start : start + SEARCH_BYTES]
            matches = scanner.feed(part)
            kept.add(matches)
            if contexts:
                contexts.feed(part, matches)
        if not piece:
            break
        steps.feed(piece)
        on_read(source.position())
    matches = scanner.finish()
    kept.add(matches)
    steps.finish()
    blind = _blind_spots(scanner, scanner.records_cut - cut_before, scanner.nuls - nuls_before)
    log = Log(name, kept.matches(), kept.counts, error=failure, blind=blind, progress=steps.reader.progress())
    if contexts:
        log.contexts = contexts.finish(matches, log.matches)
    if log.matches:
        log.moves = steps.moves()
    return log


def _blind_spots(scanner: Scanner, cut: int, nuls: int) -> str | None:
    parts = []
    if cut:
        parts.append(
            f"{cut} records were searched in part: they are longer than {RECORD_LIMIT // 1024} KiB, or crowded"
        )
    if nuls >= NULS:
        parts.append(f"{nuls} NUL bytes: a part that was truncated away, or an encoding that cannot be read")
    parts += [f"the signal {name} was off: {why}" for name, why in scanner.off.items()]
    return "; ".join(parts) or None


class _FirstAndLast:
    """Keeps the first and the last matches of each signal."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._first: dict[str, list[Match]] = {}
        self._last: dict[str, deque[Match]] = {}

    def add(self, matches: Iterable[Match]) -> None:
        for match in matches:
            name = match.signal.name
            before = self.counts.get(name, 0)
            self.counts[name] = before + match.count
            if before < FIRST:
                self._first.setdefault(name, []).append(match)
            else:
                self._last.setdefault(name, deque(maxlen=LAST)).append(match)

    def matches(self) -> list[Match]:
        every = [*self._first.values(), *self._last.values()]
        return sorted((match for some in every for match in some), key=lambda match: match.offset)


class _Steps:
    """Tracks the training's progress, and the offsets of the last steps that were higher than all before."""

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
        """Return the offsets; reads their pieces again, the last one first."""
        moves: list[int] = []
        for before, data in reversed(self._risen):
            found = last_rises(data, STEPS_THAT_PROVE_LIFE, before)
            moves = [*(before["offset"] + each for each in found), *moves]
            if len(moves) >= STEPS_THAT_PROVE_LIFE:
                break
        return moves[-STEPS_THAT_PROVE_LIFE:]
