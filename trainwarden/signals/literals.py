"""Finds many fixed texts in a chunk at once: the stage that determines the speed of reading a log."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Protocol

Hit = tuple[int, int, int]
# A table for each byte of a text: beyond this it needs too much memory.
_DFA_BYTES = 100_000


class Literals(Protocol):
    """Finds every occurrence of every literal, overlapping ones too."""

    def find(self, chunk: bytes) -> Iterable[Hit]:
        """Yield (index of the literal, start, end) for each occurrence, never going back by a record."""
        ...


def literals(texts: Sequence[bytes]) -> Literals:
    """Return the fastest installed finder; all find the same."""
    for finder in (_Hyperscan, _Automaton):
        try:
            return finder(texts)
        except ImportError:  # noqa: PERF203  # there are two
            continue
    return _OneByOne(texts)


class _Hyperscan:
    """All literals in one pass, by hyperscan. One thread at a time."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        hyperscan = import_module("hyperscan")  # an optional dependency, without types
        self._lengths = [len(text) for text in texts]
        self._database = hyperscan.Database()
        # As expressions: for pure texts it takes a NUL byte for the end.
        spelled = ["".join(f"\\x{byte:02x}" for byte in text).encode() for text in texts]
        count = len(texts)
        self._database.compile(expressions=spelled, ids=list(range(count)), flags=[0] * count, elements=count)

    def find(self, chunk: bytes) -> Iterable[Hit]:
        hits: list[Hit] = []
        lengths = self._lengths

        def hit(index: int, _: int, end: int, *__: object) -> None:
            hits.append((index, end - lengths[index], end))

        self._database.scan(chunk, match_event_handler=hit)
        return hits


class _Automaton:
    """All literals in one pass, by ahocorasick_rs."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        from ahocorasick_rs import BytesAhoCorasick, Implementation  # noqa: PLC0415  # an optional dependency

        # Five times as fast as the package's default for so many texts.
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
