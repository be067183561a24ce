"""Values of amdsmi in base units; None for blanks ("N/A", all bits set) and for what no GPU can have."""

from __future__ import annotations

from typing import Any

from trainwarden_exporter.collectors.gpu.calls import DriverCalls

_BLANKS = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
# Megatransfers a second of a PCI lane.
_GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}


class AmdsmiCalls(DriverCalls):
    """Calls of amdsmi for one GPU, many of which return a dictionary."""

    def table(self, function: str, *arguments: Any) -> dict[str, Any]:
        """Return the dictionary that a function returns; an empty one if it returns another type, or fails."""
        answer = self.call(function, *arguments)
        return answer if isinstance(answer, dict) else {}

    def constant(self, group: str, name: str) -> Any:
        """Return a member of one of the library's enumerations; None where this version has none."""
        return getattr(getattr(self.module, group, None), name, None)


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
    """Return a temperature: old versions return thousandths of a degree, and 0 for a missing sensor."""
    degrees = within(value, 1, 200)
    thousandths = within(value, 1000, 200_000)
    return thousandths / 1000 if degrees is None and thousandths is not None else degrees


def hertz(megahertz: Any) -> float | None:
    """Return a clock."""
    valid = within(megahertz, 0, 20_000)
    return None if valid is None else valid * 1e6


def watts(*values: Any) -> float | None:
    """Return the first valid power: which of them a GPU has depends on its generation, and no GPU draws 0 W."""
    return next((valid for value in values if (valid := within(value, 1, 20_000)) is not None), None)


def watts_of_microwatts(value: Any) -> float | None:
    """Return a power limit."""
    valid = within(value, 1e6, 20_000e6)
    return None if valid is None else valid / 1e6


def lanes(value: Any) -> float | None:
    """Return the width of a PCI link."""
    return within(value, 1, 64)


def generation(megatransfers: Any) -> int | None:
    """Return the generation of a PCI link of this speed."""
    speed = within(megatransfers, 1, 128_000)
    return None if speed is None else _GENERATIONS.get(int(speed))


def flag(value: Any) -> float | None:
    """Return 1 or 0 for a boolean."""
    return float(value) if isinstance(value, bool) else None


def text(value: Any) -> str:
    """Return a text for a label; empty where there is none."""
    found = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "" if found in {"N/A", "None"} else found.strip()
