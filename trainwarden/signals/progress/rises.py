"""Where in a log the highest step rose: what failed before the last few such places was survived."""

from collections.abc import Mapping
from typing import Any

from trainwarden.signals.progress.reader import ProgressReader

# The text is first read in parts, and record by record only where the step rose.
_PART_BYTES = 4096


def last_rises(data: bytes, most: int, state: Mapping[str, Any] | None = None) -> list[int]:
    """Return the offsets in `data` of the last records with a step that is higher than all before, at most `most`.

    Args:
        data: an incomplete record at its end is left aside.
        most: of the latest ones.
        state: of a `ProgressReader` at the beginning of `data`; None at the beginning of a log.
    """
    data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    reader = ProgressReader()
    if state is not None:
        reader.restore(state)
    parts: list[tuple[dict[str, Any], int]] = []
    base, start = reader.state()["offset"], 0
    while start < len(data):
        before, high = reader.state(), reader.progress().high_water
        end = data.find(b"\n", min(start + _PART_BYTES, len(data)) - 1) + 1 or len(data)
        reader.feed(data[start:end])
        if _is_higher(reader.progress().high_water, high):
            parts.append((before, end))
            del parts[:-most]
        start = end
    rises: list[int] = []
    for before, end in reversed(parts):
        rises = [*_rises_by_record(before, data, base, end), *rises]
        if len(rises) >= most:
            break
    return rises[-most:]


def _rises_by_record(state: dict[str, Any], data: bytes, base: int, end: int) -> list[int]:
    reader = ProgressReader()
    reader.restore(state)
    start = int(state["offset"]) - base
    rises = []
    for record in data[start:end].replace(b"\r", b"\n").splitlines(keepends=True):
        high = reader.progress().high_water
        reader.feed(record)
        if _is_higher(reader.progress().high_water, high):
            rises.append(start)
        start += len(record)
    return rises


def _is_higher(reached: int | None, before: int | None) -> bool:
    return reached is not None and (before is None or reached > before)
