"""The lines around matches, kept while the log is read: standard input can't be read twice."""

from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden.signals.model import Match

LINES = 2
# Bytes around a match in which its neighbouring lines are kept.
_REACH = 8 * 1024
_WIDTH = 600
# Matches kept for each signal: which one decides is known only at the end, and mostly it is the first.
_MOST = 16


@dataclass(frozen=True)
class ContextLines:
    """The lines before and after a record."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Contexts:
    """Collects the contexts of matches while a log is fed in pieces."""

    def __init__(self) -> None:
        self._window = b""
        self._start = 0  # of the window, in the log
        self._open: list[Match] = []
        self._known: dict[int, ContextLines] = {}
        self._seen: dict[str, int] = {}

    def feed(self, piece: bytes, matches: Iterable[Match]) -> None:
        """Add a piece and the matches of the records that it completes."""
        self._window += piece
        end = self._start + len(self._window)
        self._open += [match for match in matches if self._is_wanted(match)]
        ready = [match for match in self._open if match.offset + _REACH <= end]
        self._close(ready)
        self._open = [match for match in self._open if match.offset + _REACH > end]
        keep = 2 * _REACH
        if len(self._window) > keep:
            self._start += len(self._window) - keep
            self._window = self._window[-keep:]

    def finish(self, matches: Iterable[Match], kept: Iterable[Match]) -> dict[int, ContextLines]:
        """Return the kept contexts by the offsets of their matches; `matches`: of the last record."""
        self._close([*self._open, *matches])
        offsets = {match.offset for match in kept}
        return {offset: context for offset, context in self._known.items() if offset in offsets}

    def _is_wanted(self, match: Match) -> bool:
        count = self._seen[match.signal.name] = self._seen.get(match.signal.name, 0) + 1
        return count <= _MOST and match.signal.role != "event"

    def _close(self, matches: Iterable[Match]) -> None:
        for match in matches:
            at = match.offset - self._start
            if at >= 0 and match.offset not in self._known:
                self._known[match.offset] = self._around(at)

    def _around(self, at: int) -> ContextLines:
        window = self._window.replace(b"\r", b"\n")
        before = window[max(0, at - _REACH) : at].split(b"\n")[:-1]
        after = window[at : at + _REACH].split(b"\n")[1:]
        return ContextLines(_texts(before)[-LINES:], _texts(after)[:LINES])


def _texts(lines: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(line[:_WIDTH].decode("utf-8", "replace") for line in lines if line.strip())
