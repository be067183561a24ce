"""Names of nodes as SLURM shortens them: `gpu[01-03,07],login1`, `rack[1-2]node[1-4]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ITEM = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"\[([^\[\]]*)\]")
_MAX_RANGES = 8
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")


def expand_hostlist(text: str) -> Iterator[str]:
    """Yield the names of nodes, as `scontrol show hostnames` prints them; take as many as are wanted.

    Raises:
        ValueError: the text, or a part that is reached, is no list of nodes.
    """
    position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        if item is None or (item.end() < len(text) and text[item.end()] != ","):
            raise ValueError(f"{text!r:.80} is no list of nodes")
        yield from _expand_item(item[0])
        position = item.end() + 1


def _expand_item(item: str) -> Iterator[str]:
    if item.count("[") > _MAX_RANGES:
        raise ValueError(f"{item:.80} has more than {_MAX_RANGES} ranges of nodes")
    found = _RANGES.search(item)
    if found is None:
        yield item
        return
    before, after = item[: found.start()], item[found.end() :]
    for number in _numbers(found[1]):
        for rest in _expand_item(after) if after else ("",):
            yield f"{before}{number}{rest}"


def _numbers(ranges: str) -> Iterator[str]:
    for each in ranges.split(","):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise ValueError(f"[{ranges:.60}] is no range of nodes")
        first, last = match[1], match[2] or match[1]
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"
