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

    from trainwarden.record.step_durations import StepDurations

DEFAULT_STALE_SECONDS = 600.0
STALL_VARIABLE = "TRAINWARDEN_STALL_SECONDS"
FACTOR_VARIABLE = "TRAINWARDEN_STALL_FACTOR"
# A budget that is a multiple of a run's own steps is never shorter, and stands on so many steps at least.
LEAST_STALL_SECONDS = 10.0
LEAST_STEPS = 100
# idle and done may last for ever.
DEFAULT_STALL_SECONDS: Mapping[str, float] = MappingProxyType(
    {"init": 1800.0, "compile": 1800.0, "train": 600.0, "eval": 1800.0, "checkpoint": 1800.0, "load": 1800.0}
)


class InvalidThreshold(ValueError):
    """A threshold is no positive number of seconds; the message names it."""


def _read_stale(source: JsonObject, key: str) -> float:
    seconds = source.number(key)
    return seconds if seconds and seconds > 0 else DEFAULT_STALE_SECONDS


def _read_factor(source: JsonObject, key: str) -> float | None:
    factor = source.number(key)
    return factor if factor and factor > 0 else None


def _read_stall(source: JsonObject, key: str) -> Mapping[str, float]:
    stated = source.child(key)
    found = {phase: stated.number(phase) for phase in PHASES} if stated else {}
    given = {phase: seconds for phase, seconds in found.items() if seconds is not None and seconds > 0}
    return MappingProxyType({**DEFAULT_STALL_SECONDS, **given}) if given else DEFAULT_STALL_SECONDS


class Thresholds(RecordDocument):
    """`thresholds` of `metadata.json`.

    Seconds without any heartbeat until a run counts as timed out, and without progress, by phase, until as stalled. In
    the train phase `stall_factor` times the 99th percentile of the run's own steps, if it is given and that is shorter.
    """

    stale_seconds: float = key(_read_stale, default=DEFAULT_STALE_SECONDS)
    stall_seconds: Mapping[str, float] = key(_read_stall, default=DEFAULT_STALL_SECONDS)
    stall_factor: float | None = key(_read_factor)

    def to_json(self) -> dict[str, Any]:
        """Return all, defaults included: readers need not know those."""
        factor = {} if self.stall_factor is None else {"stall_factor": self.stall_factor}
        return {"stale_seconds": self.stale_seconds, "stall_seconds": dict(self.stall_seconds), **factor}

    def stall_budget(self, phase: str, durations: StepDurations | None, *, inferred: bool = False) -> float | None:
        """Return the seconds without progress after which a run counts as stalled; None if it never does.

        Args:
            phase: of the run.
            durations: of its last steps, if it reports them.
            inferred: whether phase and steps are taken from what it prints: then its own pace is not known.
        """
        absolute = self.stall_seconds.get(phase)
        if self.stall_factor is None or phase != "train" or inferred or durations is None:
            return absolute
        if not durations.p99 or (durations.count or 0) < LEAST_STEPS:
            return absolute
        relative = max(self.stall_factor * durations.p99, LEAST_STALL_SECONDS)
        return relative if absolute is None else min(relative, absolute)


def known_phase(name: str) -> str:
    """Return the phase that a name stands for: "training" reads as train, and so does every unknown one."""
    if name in PHASES:
        return name
    lowered = name.strip().lower()
    return lowered if lowered in PHASES else "train"


def choose(given: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> Thresholds:
    """Return the thresholds of a run: those given, else those of the environment, else the defaults.

    Args:
        given: `{"stale_seconds": s, "stall_seconds": {phase: s}, "stall_factor": times}`, each part optional.
        environ: read for STALE_MINUTES, TRAINWARDEN_STALL_SECONDS (the budgets as `stall_budgets` reads them) and
            TRAINWARDEN_STALL_FACTOR.

    Raises:
        InvalidThreshold: a value is no positive number, or a key is unknown.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidThreshold(f"thresholds={given!r} is no dictionary")
    stale, stall = DEFAULT_STALE_SECONDS, dict(DEFAULT_STALL_SECONDS)
    if environ.get("STALE_MINUTES"):
        stale = _positive("STALE_MINUTES", environ["STALE_MINUTES"], 60.0)
    stall |= given_stall(environ)
    factor = given_factor(environ)
    for name, value in (given or {}).items():
        if name == "stale_seconds":
            stale = _positive(f"thresholds[{name!r}]", value)
        elif name == "stall_factor":
            factor = _positive(f"thresholds[{name!r}]", value)
        elif name == "stall_seconds" and isinstance(value, Mapping):
            for phase, seconds in value.items():
                if phase not in PHASES:
                    raise InvalidThreshold(f"thresholds['stall_seconds']: {phase!r} is no phase; one of {PHASES}")
                stall[phase] = _positive(f"thresholds['stall_seconds'][{phase!r}]", seconds)
        else:
            raise InvalidThreshold(
                f"thresholds: {name!r}: {value!r} is not understood; "
                "expected 'stale_seconds': seconds, 'stall_seconds': {phase: seconds} or 'stall_factor': times"
            )
    return Thresholds(stale, MappingProxyType(stall), factor)


def given_factor(environ: Mapping[str, str]) -> float | None:
    """Return the factor of the stall budget that the environment gives; None without one.

    Raises:
        InvalidThreshold: it is no positive number.
    """
    text = environ.get(FACTOR_VARIABLE, "")
    return _positive(FACTOR_VARIABLE, text) if text.strip() else None


def given_stall(environ: Mapping[str, str]) -> dict[str, float]:
    """Return the stall budgets that the environment gives, by phase: those that are not defaults.

    Raises:
        InvalidThreshold: see `stall_budgets`.
    """
    return stall_budgets(environ.get(STALL_VARIABLE, ""))


def stall_budgets(text: str, name: str = "") -> dict[str, float]:
    """Return the stall budgets that a text gives, in seconds by phase: `15`, `15,init=300` or `init=5m,train=15`.

    A duration without a phase is the budget of the phase train.

    Args:
        text: of an option or a variable; empty gives none.
        name: of the option, for the message; the variable TRAINWARDEN_STALL_SECONDS if empty.

    Raises:
        InvalidThreshold: a duration is not positive, a phase is unknown, or one is given twice.
    """
    name = name or STALL_VARIABLE
    budgets: dict[str, float] = {}
    for part in text.split(",") if text.strip() else ():
        stated, is_stated, seconds = part.strip().rpartition("=")
        phase = stated.strip().lower() if is_stated else "train"
        phase = "train" if phase == "training" else phase
        if phase not in PHASES:
            raise InvalidThreshold(f"{name}: {phase[:40]!r} is no phase; one of {', '.join(PHASES)}")
        if phase in budgets:
            raise InvalidThreshold(f"{name}: {text[:80]!r} gives the phase {phase} twice")
        budgets[phase] = _positive(name, seconds.strip())
    return budgets


def stall_text(budgets: Mapping[str, float]) -> str:
    """Return the text from which `stall_budgets` reads the same."""
    return ",".join(f"{phase}={seconds:.12g}" for phase, seconds in budgets.items())


def _positive(name: str, value: Any, unit_seconds: float = 1.0) -> float:
    """Return the seconds of a number of units, or of a duration with units of its own."""
    seconds = -1.0
    try:
        seconds = float(value) * unit_seconds
    except (TypeError, ValueError):
        if isinstance(value, str):
            seconds = _duration(value)
    if not 0 < seconds < 1e9:
        raise InvalidThreshold(f"{name}: {value!r} is not a positive number")
    return seconds


def _duration(text: str) -> float:
    # Loaded for a text with a unit alone: shell commands load this module.
    from trainwarden.duration import parse_duration  # noqa: PLC0415

    try:
        return parse_duration(text)
    except ValueError:
        return -1.0
