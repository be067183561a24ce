"""How long a run may be silent or stand still before that means something."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from trainwarden.record.document import JsonObject
from trainwarden.record.folder import PHASES
from trainwarden.record.schema import RecordDocument, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_STALE_SECONDS = 600.0
# idle and done may last for ever.
DEFAULT_STALL_SECONDS: Mapping[str, float] = MappingProxyType(
    {"init": 1800.0, "compile": 1800.0, "train": 600.0, "eval": 1800.0, "checkpoint": 1800.0, "load": 1800.0}
)


class InvalidThreshold(ValueError):
    """A threshold is no positive number of seconds; the message names it."""


def _read_stale(source: JsonObject, key: str) -> float:
    seconds = source.number(key)
    return seconds if seconds and seconds > 0 else DEFAULT_STALE_SECONDS


def _read_stall(source: JsonObject, key: str) -> Mapping[str, float]:
    stated = source.child(key)
    found = {phase: stated.number(phase) for phase in PHASES} if stated else {}
    given = {phase: seconds for phase, seconds in found.items() if seconds is not None and seconds > 0}
    return MappingProxyType({**DEFAULT_STALL_SECONDS, **given}) if given else DEFAULT_STALL_SECONDS


class Thresholds(RecordDocument):
    """`thresholds` of `metadata.json`.

    Seconds without any heartbeat until a run counts as timed out, and without progress, by phase, until as stalled.
    """

    stale_seconds: float = key(_read_stale, default=DEFAULT_STALE_SECONDS)
    stall_seconds: Mapping[str, float] = key(_read_stall, default=DEFAULT_STALL_SECONDS)

    def to_json(self) -> dict[str, Any]:
        """Return both, defaults included: readers need not know those."""
        return {"stale_seconds": self.stale_seconds, "stall_seconds": dict(self.stall_seconds)}


def known_phase(name: str) -> str:
    """Return the phase that a name stands for: "training" reads as train, and so does every unknown one."""
    lowered = name.strip().lower()
    return lowered if lowered in PHASES else "train"


def choose(given: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> Thresholds:
    """Return the thresholds of a run: those given, else those of the environment, else the defaults.

    Args:
        given: `{"stale_seconds": s, "stall_seconds": {phase: s}}`, each part optional.
        environ: read for STALE_MINUTES and TRAINWARDEN_STALL_SECONDS.

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
    for name, value in (given or {}).items():
        if name == "stale_seconds":
            stale = _positive(f"thresholds[{name!r}]", value)
        elif name == "stall_seconds" and isinstance(value, Mapping):
            for phase, seconds in value.items():
                if phase not in PHASES:
                    raise InvalidThreshold(f"thresholds['stall_seconds']: {phase!r} is no phase; one of {PHASES}")
                stall[phase] = _positive(f"thresholds['stall_seconds'][{phase!r}]", seconds)
        else:
            raise InvalidThreshold(
                f"thresholds: {name!r}: {value!r} is not understood; "
                "expected 'stale_seconds': seconds or 'stall_seconds': {phase: seconds}"
            )
    return Thresholds(stale, MappingProxyType(stall))


def _positive(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise InvalidThreshold(f"{name}: {value!r} is not a positive number")
    return seconds
