"""How long records are searched: in windows near the texts that a pattern requires, within limits of bytes and time.

A single search cannot be interrupted, so each is of one window; what exceeds the limits is searched in part.
"""

from __future__ import annotations

import time

# Imported by shell commands, whose start-up time does not allow `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A record is searched this far.
RECORD_LIMIT = 64 * 1024
# A shorter record is searched as a whole for what its texts suggest, a longer one only around them.
SHORT_RECORD = 256
# Of all patterns together in one long record: bytes that they are run on, and processor time, at most.
SEARCH_LIMIT = 256 * 1024
RECORD_SECONDS = 0.012
# Bytes of one search in which a match may begin.
WINDOW = 1024
# Control sequences, commands of the operating system (links, titles), character sets and single functions.
ESCAPE_SEQUENCE = (
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)?|[ #()*+][!-~]|[=>78cDEHMNOZ\\])"
)


class SearchBudget:
    """What may still be searched of one long record."""

    __slots__ = ("_began", "_left", "_seconds")

    def __init__(self, most_bytes: float = SEARCH_LIMIT, seconds: float = RECORD_SECONDS) -> None:
        self._left, self._seconds, self._began = most_bytes, seconds, time.thread_time()

    def allows(self, size: int) -> bool:
        """Return whether so many bytes more may be searched, and count them."""
        self._left -= size
        return self._left >= 0 and time.thread_time() - self._began <= self._seconds


def extend(stretches: list[list[int]], first: int, last: int, most: int) -> None:
    """Add a stretch behind all others, as a part of the last one if that ends at most so many bytes before it."""
    if stretches and first - stretches[-1][1] <= most:
        stretches[-1][0], stretches[-1][1] = min(first, stretches[-1][0]), max(last, stretches[-1][1])
    else:
        stretches.append([first, last])


def stretches_of(texts: Sequence[bytes], record: bytes, reach: int) -> list[list[int]]:
    """Return the first and the last place of each group of places near each other where one of the texts is."""
    found: list[list[int]] = []
    for text in texts:
        at = record.find(text)
        while at >= 0:
            # The last place that belongs to the same group.
            last = record.rfind(text, at, at + 2 * reach + len(text))
            found.append([at, last])
            at = record.find(text, last + 1)
    joined: list[list[int]] = []
    for first, last in sorted(found):
        extend(joined, first, last, 2 * reach)
    return joined


def windows(stretches: Sequence[Sequence[int]], reach: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the bounds of each search near the stretches, and the last place where a match of it may begin.

    Args:
        stretches: places of required texts in the record.
        reach: the most bytes that a match and what it looks ahead at can span.
        start: of the record.
        end: of the record.
    """
    for first, last in stretches:
        for begin in range(max(start, first - reach), last + 1, WINDOW):
            stop = min(last, begin + WINDOW - 1)
            yield begin, min(end, stop + reach), stop
