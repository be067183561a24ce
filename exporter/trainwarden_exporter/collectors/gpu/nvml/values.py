"""Values of NVML in base units; None for blanks and for what no GPU can have, which are left out."""

from __future__ import annotations

from typing import Any

_UNSIGNED = 0xFFFFFFFF
# DCGM's and NVML's blanks are the highest values of their type.
_BLANK = 0x7FFFFFFFFFFFFFF0
KIB = 1024


def counted(value: float | None) -> float | None:
    """Return a count or an amount; None for a blank."""
    return None if value is None or value < 0 or value >= _BLANK or value == _UNSIGNED else value


def within(value: float | None, low: float, high: float) -> float | None:
    """Return a value from `low` to `high`; None for another."""
    return value if value is not None and low <= value <= high else None


def ratio(percent: float | None) -> float | None:
    """Return a share of 0..1."""
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def celsius(value: float | None) -> float | None:
    """Return a temperature; NVML returns 0 for a missing sensor."""
    return within(value, 1, 200)


def margin(value: float | None) -> float | None:
    """Return a difference of temperatures, which is negative where the GPU is too hot."""
    return within(value, -100, 200)


def watts(milliwatts: float | None) -> float | None:
    """Return a power."""
    return milliwatts / 1000 if milliwatts is not None and 0 <= milliwatts <= 20_000_000 else None


def joules(millijoules: float | None) -> float | None:
    """Return an energy."""
    valid = counted(millijoules)
    return None if valid is None else valid / 1000


def hertz(megahertz: float | None) -> float | None:
    """Return a clock."""
    return megahertz * 1e6 if megahertz is not None and 0 <= megahertz <= 100_000 else None


def bytes_of_kib(kib: float | None) -> float | None:
    """Return an amount of data."""
    return None if kib is None else kib * KIB


def bytes_of_mib(mib: float | None) -> float | None:
    """Return an amount of data."""
    return None if mib is None or mib < 0 else mib * KIB * KIB


def seconds(nanoseconds: float | None) -> float | None:
    """Return a duration."""
    return None if nanoseconds is None else nanoseconds / 1e9


def bit_error_ratio(value: float) -> float:
    """Return a share of bits with errors: bits 8 to 11 are the mantissa, bits 0 to 7 the negative exponent of 10."""
    number = int(value)
    return (number >> 8 & 0xF) * 10.0 ** -(number & 0xFF)


def lanes(value: float | None) -> float | None:
    """Return the width of a PCI link."""
    return within(value, 1, 32)


def generation(value: float | None) -> float | None:
    """Return the generation of a PCI link."""
    return within(value, 1, 9)


def action(value: float | None) -> float | None:
    """Return a recovery action."""
    return within(value, 0, 255)


def text(value: Any) -> str:
    """Return a text that NVML returned: old versions of pynvml give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
