"""Finds many fixed texts in a chunk at once: the stage that decides how fast a log is read."""

from collections.abc import Iterable, Sequence
from typing import Protocol

Hit = tuple[int, int, int]
# A table for each byte of a text: beyond this it needs too much memory.
_DFA_BYTES = 100_000


class Literals(Protocol):
    """Finds every occurrence of every literal, overlapping ones too."""

    def find(self, chunk: bytes) -> Iterable[Hit]:
        """(index of the literal, start, end) for each occurrence, in an order that never goes back by a record."""
        ...


def literals(texts: Sequence[bytes]) -> Literals:
    """The fastest finder that is installed."""
    try:
        return _Automaton(texts)
    except ImportError:
        return _OneByOne(texts)


class _Automaton:
    """All literals in one pass, by ahocorasick_rs."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        from ahocorasick_rs import BytesAhoCorasick, Implementation  # noqa: PLC0415  # an optional dependency

        # Five times as fast as what the package chooses for so many texts.
        kind = Implementation.DFA if sum(map(len, texts)) <= _DFA_BYTES else Implementation.ContiguousNFA
        self._automaton = BytesAhoCorasick(list(texts), implementation=kind)

    def find(self, chunk: bytes) -> Iterable[Hit]:
        found: Iterable[Hit] = self._automaton.find_matches_as_indexes(chunk, overlapping=True)
        return found


class _OneByOne:
    """One pass for each literal, with nothing but the standard library."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = tuple(texts)

    def find(self, chunk: bytes) -> Iterable[Hit]:
        hits: list[Hit] = []
        for index, text in enumerate(self._texts):
            start = chunk.find(text)
            while start >= 0:
                hits.append((index, start, start + len(text)))
                start = chunk.find(text, start + 1)
        hits.sort(key=lambda hit: hit[1])
        return hits
