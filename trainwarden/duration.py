"""Durations as users write them in flags and configuration files."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of `2`, `2s`, `500ms`, `1m` or `1h`; raises `ValueError` for anything else, and for zero."""
    match = _DURATION.fullmatch(text)
    seconds = float(match["number"]) * _UNIT_SECONDS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is no duration: expected one above zero, such as 2s, 500ms or 1m")
    return seconds
