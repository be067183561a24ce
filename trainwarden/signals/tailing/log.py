"""A growing log: the matches of signals and the progress in it, each record counted once."""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwarden.signals.diagnosis import STEPS_THAT_PROVE_LIFE
from trainwarden.signals.model import Match, Signal
from trainwarden.signals.pack import Pack
from trainwarden.signals.progress import LogProgress, ProgressReader
from trainwarden.signals.progress.rises import last_rises
from trainwarden.signals.scanner import Scanner
from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.remainder import Position

PIECE_BYTES = 256 * 1024
# Of each signal: the first ones, among them the cause, and the last.
KEPT = 8
# Of all signals together: a log in which more are found than fail together is made up, or quotes them.
MAX_SEEN = 64
# As many at least where the logs of a user are many: each user's take some 20 MB then.
FEWEST_SEEN = 8
_TEXT = 400
_MARKS = 64


class Searcher:
    """The compiled signals of one pack, for all logs that are searched with it, one piece at a time."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.signals: dict[str, Signal] = {signal.name: signal for signal in pack.signals}
        self.scanner = Scanner(pack.signals)
        self.lock = threading.Lock()


@dataclass(frozen=True)
class Seen:
    """A match, and the latest time at which it was written, Unix seconds."""

    match: Match
    time: float


class TailedLog:
    """Follows one file and searches what is new in it.

    `take` may raise `OSError` and `Refused`; the next call continues from the same place. An incomplete record is not
    kept: it is read again once it has grown.

    Attributes:
        most_seen: so many matches are kept at most.
        written: when the file was last written to, Unix seconds: as it states, and of a time in the future, of
            a clock that is ahead, when that was first seen. None while there is no file.
    """

    def __init__(self, path: str, roots: Sequence[str], first_read: int) -> None:
        self.path = path
        self.follower = Follower(path, roots, first_read=first_read)
        self.reader = ProgressReader()
        self.seen: list[Seen] = []
        self.most_seen = MAX_SEEN
        self.moves: tuple[int, ...] = ()  # where a step higher than all before was reported, the last few
        self.written: float | None = None
        self._modified: float | None = None
        self._roots = roots
        self._first_read = first_read
        self._at = 0  # in the text of all its files, one after the other
        self._line = 1
        self._skipping = False
        self._before = ""
        self._marks: deque[tuple[int, float]] = deque(maxlen=_MARKS)

    @property
    def progress(self) -> LogProgress:
        """The training's progress by the log."""
        return self.reader.progress()

    def poll(self, now: float) -> None:
        """Poll the file; call it once, then `take` until that returns None."""
        self.follower.poll()
        modified = self.follower.modified
        if modified != self._modified or (self.written is not None and self.written > now):
            self._modified, self.written = modified, None if modified is None else min(modified, now)
        self._mark(now)

    def take(self, searcher: Searcher, now: float, *, last: bool = False) -> tuple[list[Match], bytes] | None:
        """Search the next piece; return the matches and the bytes of whole records, None if none is complete.

        Args:
            searcher: the signals.
            now: Unix seconds.
            last: no process writes any more: a record at the end without a line feed is complete.
        """
        piece = self.follower.read(PIECE_BYTES)
        if piece is None:
            return None
        if piece.anew:
            self._skipping, self._before = False, ""
            self._marks.clear()
            self._mark(now)
        scanner = searcher.scanner
        with searcher.lock:
            scanner.restore(
                {"offset": self._at, "line": self._line, "skipping": self._skipping, "before": self._before, "off": {}}
            )
            matches = scanner.feed(piece.data)
            if piece.last or (last and len(piece.data) < PIECE_BYTES):
                matches += scanner.finish()
            after = scanner.state()
        done = int(after["offset"]) - self._at
        if not done:
            return None
        data = piece.data[:done]
        self._move_on(data)
        self._line, self._skipping, self._before = int(after["line"]), bool(after["skipping"]), str(after["before"])
        self.follower.consume(done)
        time = self._written_by(self.follower.offset, now)
        self._keep(matches, time)
        return matches, data

    def forget_before(self, time: float) -> None:
        """Drop what was written before `time` (Unix seconds), when a new attempt began."""
        self.seen = [one for one in self.seen if one.time >= time]
        self.moves = ()
        self.reader = ProgressReader()

    def state(self) -> dict[str, Any]:
        """Return all state, in types that JSON has."""
        position = self.follower.position
        return {
            "path": self.path, "file": position and position.as_json(), "at": self._at, "line": self._line,
            "skipping": self._skipping, "before": self._before, "skipped": self.follower.skipped,
            "moves": list(self.moves),
            "progress": self.reader.state(), "seen": [_seen_state(one) for one in self.seen],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any], signals: Mapping[str, Signal]) -> None:
        """Continue from what `state()` returned.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is no such state; this log is as new.
        """
        position = Position.of_json(state["file"]) if state["file"] else None
        reader = ProgressReader()
        reader.restore(state["progress"])
        seen = [_seen(one, signals[one["signal"]]) for one in state["seen"] if one["signal"] in signals]
        at, line, moves = int(state["at"]), int(state["line"]), tuple(int(move) for move in state["moves"])
        skipped = int(state["skipped"])
        self.follower = Follower(self.path, self._roots, position, first_read=self._first_read)
        self.follower.skipped = skipped
        self.reader, self.seen, self.moves = reader, seen, moves
        self._at, self._line, self._skipping = at, line, bool(state["skipping"])
        self._before = str(state.get("before", ""))

    def _move_on(self, data: bytes) -> None:
        before, state = self.progress.high_water, self.reader.state()
        self.reader.feed(data)
        reached = self.progress.high_water
        if reached is not None and (before is None or reached > before):
            rises = [self._at + each for each in last_rises(data, STEPS_THAT_PROVE_LIFE, state)]
            self.moves = (*self.moves, *rises)[-STEPS_THAT_PROVE_LIFE:]
            if len(self.moves) == STEPS_THAT_PROVE_LIFE:
                # The training went on after these; see trainwarden.signals.diagnosis.
                self.seen = [one for one in self.seen if one.match.offset >= self.moves[0]]
        self._at += len(data)

    def keep_at_most(self, number: int) -> None:
        """Keep no more matches than so many from now on: the first ones, of each signal one before any second."""
        self.most_seen = number
        while len(self.seen) > number:
            if not self._drop_one():
                del self.seen[-1]

    def _keep(self, matches: list[Match], time: float) -> None:
        for match in matches:
            known = [index for index, one in enumerate(self.seen) if one.match.signal.name == match.signal.name]
            if len(known) >= KEPT:
                del self.seen[known[-1]]
            elif len(self.seen) >= self.most_seen and not self._drop_one():
                continue
            self.seen.append(Seen(replace(match, text=match.text[:_TEXT]), time))

    def _drop_one(self) -> bool:
        """Drop the last match of the signal that has most; return False if none has more than its first."""
        [(name, count)] = Counter(one.match.signal.name for one in self.seen).most_common(1)
        if count > 1:
            del self.seen[max(index for index, one in enumerate(self.seen) if one.match.signal.name == name)]
        return count > 1

    def _mark(self, now: float) -> None:
        """Record that the content up to the present size was written by the time of the file's last change."""
        modified = self.follower.modified
        self._marks.append((self.follower.size, now if modified is None else min(now, modified)))

    def _written_by(self, offset: int, now: float) -> float:
        """Return the latest time at which the byte before the offset was written."""
        return min((time for size, time in self._marks if size >= offset), default=now)


def _seen_state(one: Seen) -> dict[str, Any]:
    match = one.match
    return {
        "signal": match.signal.name, "offset": match.offset, "line": match.line, "text": match.text,
        "fields": dict(match.fields), "time": one.time,
    }  # fmt: skip


def _seen(state: Mapping[str, Any], signal: Signal) -> Seen:
    fields = {str(name): str(value) for name, value in state["fields"].items()}
    match = Match(signal, int(state["offset"]), int(state["line"]), str(state["text"]), fields)
    return Seen(match, float(state["time"]))
