"""Durations as Prometheus writes them, and in seconds."""

from __future__ import annotations

import pytest

from tests.cases import cases
from trainwarden.duration import parse_duration

DAY = 86400.0


@cases(
    ("text", "seconds"),
    [
        ("2", 2), ("0.5", 0.5), ("2s", 2), ("0.5s", 0.5), ("500ms", 0.5), ("1m", 60), ("1h30m", 5400), ("1d", DAY),
        ("2w", 14 * DAY), ("1y", 365 * DAY), ("1y2w3d4h5m6s7ms", 382 * DAY + 4 * 3600 + 306.007), ("1d12h", 1.5 * DAY),
        ("0s1ms", 0.001), ("90m", 5400), ("1.5h", 5400),
    ],
)  # fmt: skip
def test_a_duration_is_so_many_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@cases(
    "text",
    [
        "", "0", "0s", "0h0m", "soon", "1x", "30m1h", "1h1h", "1h 30m", " 1h", "1h\n", "-1s", "+1s", "1e3s", "1H", "h",
        "1h30", "٣s", "1_0s", "inf", "nan", "9" * 10 + "s",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_named_with_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="expected one above zero, such as 2s, 500ms, 1h30m or 1d"):
        parse_duration(text)
