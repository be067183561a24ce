"""The third value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unknown:
    """No usable answer, and why. Nothing destructive ever follows from it."""

    reason: str
