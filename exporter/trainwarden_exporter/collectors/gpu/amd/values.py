"""What amdsmi says when it says nothing: "N/A", all bits set, what no GPU can have. Left out, each time anew."""

from __future__ import annotations

from typing import Any

_BLANKS = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
_GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}


def number(value: Any) -> float | None:
    """Return a number; None for text, for what is below zero, and for a blank of 32 or 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if value < 0 or value in _BLANKS else value


def within(value: Any, low: float, high: float) -> float | None:
    """Return a number from `low` to `high`; None for another, a blank of 16 bits among them."""
    valid = number(value)
    return valid if valid is not None and low <= valid <= high else None


def ratio(percent: Any) -> float | None:
    """Return a share of 0..1."""
    valid = within(percent, 0, 100)
    return None if valid is None else valid / 100


def celsius(value: Any) -> float | None:
    """Return a temperature: old versions say thousandths of a degree, and 0 for a sensor that is not there."""
    degrees = within(value, 1, 200)
    thousandths = within(value, 1000, 200_000)
    return thousandths / 1000 if degrees is None and thousandths is not None else degrees


def hertz(megahertz: Any) -> float | None:
    """Return a clock."""
    valid = within(megahertz, 0, 20_000)
    return None if valid is None else valid * 1e6


def watts(*values: Any) -> float | None:
    """Return the first power that is one: which of them a GPU has depends on its generation, and none draws nothing."""
    return next((valid for value in values if (valid := within(value, 1, 20_000)) is not None), None)


def generation(megatransfers: Any) -> int | None:
    """Return the generation of a PCI link of this speed."""
    speed = within(megatransfers, 1, 128_000)
    return None if speed is None else _GENERATIONS.get(int(speed))


def word(value: Any) -> str:
    """Return text for a label; empty where there is none."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "" if text in {"N/A", "None"} else text.strip()
