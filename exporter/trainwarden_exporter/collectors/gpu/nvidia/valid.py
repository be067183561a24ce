"""What NVML says when it says nothing: values that no GPU can have are left out, each time anew."""

from __future__ import annotations

_UNSIGNED = 0xFFFFFFFF
# DCGM's and NVML's blanks stand at the top of their type.
_BLANK = 0x7FFFFFFFFFFFFFF0


def counted(value: float | None) -> float | None:
    """Return a count or an amount; None for a blank."""
    return None if value is None or value < 0 or value >= _BLANK or value == _UNSIGNED else value


def within(value: float | None, low: float, high: float) -> float | None:
    """Return a value from `low` to `high`; None for another."""
    return value if value is not None and low <= value <= high else None


def ratio(percent: float | None) -> float | None:
    """Return a share of 0..1."""
    valid = within(percent, 0, 100)
    return None if valid is None else valid / 100


def celsius(value: float | None) -> float | None:
    """Return a temperature; NVML says 0 for a sensor that is not there."""
    return within(value, 1, 200)


def watts(milliwatts: float | None) -> float | None:
    """Return a power."""
    valid = within(milliwatts, 0, 20_000_000)
    return None if valid is None else valid / 1000
