"""Durations as users write them in flags and configuration files: as Prometheus does, or in seconds."""

from __future__ import annotations

import re

# From the longest on, as they follow each other in one duration; a year has 365 days, as in Prometheus.
_UNIT_SECONDS = {"y": 365 * 86400.0, "w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_SECONDS = re.compile(_NUMBER, re.ASCII)
_DURATION = re.compile("".join(f"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNIT_SECONDS), re.ASCII)


def parse_duration(text: str, unit_seconds: float = 1.0) -> float:
    """Return the seconds of `2`, `2s`, `500ms`, `1h30m` or `1d`; raises `ValueError` otherwise, and for zero.

    A number alone counts in units of `unit_seconds`.
    """
    seconds = 0.0
    if _SECONDS.fullmatch(text):
        seconds = float(text) * unit_seconds
    elif match := _DURATION.fullmatch(text):
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for unit, number in match.groupdict("0").items())
    if seconds <= 0:
        raise ValueError(f"{text!r} is no duration: expected one above zero, such as 2s, 500ms, 1h30m or 1d")
    return seconds
