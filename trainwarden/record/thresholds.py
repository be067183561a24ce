"""How long a run may be silent or stand still before that means something."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainwarden.record.document import Document
from trainwarden.record.place import PHASES

DEFAULT_STALE_SECONDS = 600.0
# idle and done may last for ever.
DEFAULT_STALL_SECONDS: Mapping[str, float] = MappingProxyType(
    {"init": 1800.0, "compile": 1800.0, "train": 600.0, "eval": 1800.0, "checkpoint": 1800.0, "load": 1800.0}
)


class InvalidThreshold(ValueError):
    """A threshold is no positive number of seconds; the message names it."""


@dataclass(frozen=True)
class Thresholds:
    """Seconds without any heartbeat until a run counts as timed out, and without progress, by phase, as stalled."""

    stale_seconds: float = DEFAULT_STALE_SECONDS
    stall_seconds: Mapping[str, float] = field(default_factory=lambda: DEFAULT_STALL_SECONDS)

    def as_json(self) -> dict[str, Any]:
        """As `metadata.json` holds them."""
        return {"stale_seconds": self.stale_seconds, "stall_seconds": dict(self.stall_seconds)}


def known_phase(name: str) -> str:
    """The phase that a name stands for: "training" reads as train, and so does every unknown one."""
    lowered = name.strip().lower()
    return lowered if lowered in PHASES else "train"


def choose(given: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> Thresholds:
    """The thresholds of a run: those given, else those of the environment, else the defaults.

    Args:
        given: `{"stale_seconds": s, "stall_seconds": {phase: s}}`, each part optional.
        environ: looked up for STALE_MINUTES and TRAINWARDEN_STALL_SECONDS.

    Raises:
        InvalidThreshold: a value is no positive number, or a key is unknown.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidThreshold(f"thresholds={given!r} is no dictionary")
    stale, stall = DEFAULT_STALE_SECONDS, dict(DEFAULT_STALL_SECONDS)
    if environ.get("STALE_MINUTES"):
        stale = 60 * _positive("STALE_MINUTES", environ["STALE_MINUTES"])
    if environ.get("TRAINWARDEN_STALL_SECONDS"):
        stall["train"] = _positive("TRAINWARDEN_STALL_SECONDS", environ["TRAINWARDEN_STALL_SECONDS"])
    for key, value in (given or {}).items():
        if key == "stale_seconds":
            stale = _positive(f"thresholds[{key!r}]", value)
        elif key == "stall_seconds" and isinstance(value, Mapping):
            for phase, seconds in value.items():
                if phase not in PHASES:
                    raise InvalidThreshold(f"thresholds['stall_seconds']: {phase!r} is no phase; one of {PHASES}")
                stall[phase] = _positive(f"thresholds['stall_seconds'][{phase!r}]", seconds)
        else:
            raise InvalidThreshold(
                f"thresholds: {key!r}: {value!r} is not understood; "
                "expected 'stale_seconds': seconds or 'stall_seconds': {phase: seconds}"
            )
    return Thresholds(stale, MappingProxyType(stall))


def read(document: Document | None) -> Thresholds:
    """The thresholds that a record states, with defaults for what it does not state or states wrongly."""
    if document is None:
        return Thresholds()
    stale = document.number("stale_seconds")
    stall = dict(DEFAULT_STALL_SECONDS)
    if stated := document.child("stall_seconds"):
        for phase in PHASES:
            seconds = stated.number(phase)
            if seconds is not None and seconds > 0:
                stall[phase] = seconds
    return Thresholds(stale if stale and stale > 0 else DEFAULT_STALE_SECONDS, MappingProxyType(stall))


def _positive(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise InvalidThreshold(f"{name}: {value!r} is not a positive number")
    return seconds
