"""Warnings about calls with unusable arguments: one log line for each kind, and never an exception."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from trainwarden.record.folder import PHASES

# The library's own lines in `events.jsonl`; readers rely on their fields, so `note()` may not write them.
RESERVED_EVENTS = frozenset(
    (
        "training_started",
        "attempt_lost",
        "attempt_restarted",
        "attempt_not_restarted",
        "attempt_resubmitted",
        "person_needed",
        "phase_changed",
        "epoch_started",
        "checkpoint_saved",
        "checkpoint_digests",
        "progress_noted",
        "gpu_stats",
        "gpu_unhealthy",
        "error",
        "lines_dropped",
        "signal_noted",
        "training_completed",
    )
)
_MAX_SHOWN = 60
# Of arguments of `step()`.
_SHORT_FORMS = {"lr": "learning_rate", "gnorm": "grad_norm", "gradient_norm": "grad_norm", "num_tokens": "tokens"}

logger = logging.getLogger("trainwarden")


class UsageWarnings:
    """One warning for each kind of misuse. The kinds are few and fixed, whatever the training passes."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn(self, kind: str, text: str, *values: Any) -> None:
        """Log the warning, the first time for this kind; `text` has a %s for each value. Never raises."""
        if kind in self._warned:
            return
        self._warned.add(kind)
        with contextlib.suppress(Exception):
            logger.warning(f"{text}; this is logged once", *map(_shown, values))  # noqa: G004  # the values stay apart

    def warn_of_values(self, names: Iterable[str], values: Mapping[str, Any]) -> None:
        """Warn of the arguments of `step()` in `names`, whose `values` are no numbers."""
        for name in names:
            if name == "step":
                self.warn(name, "step(%s): no whole number, 0 or more: the step is not recorded", values[name])
            else:
                self.warn(name, f"step(…, {name}=%s): no number: it is not recorded", values[name])

    def warn_of_metrics(self, names: Iterable[str], missing: Iterable[str]) -> None:
        """Warn of metrics of `step()` whose names are nearly those of arguments that are `missing` in the same call."""
        for name in names:
            meant = next((one for one in missing if _is_near(name, one)), None)
            if meant is not None:
                given = name[:_MAX_SHOWN]
                self.warn(f"near {meant}", f"step(…, {given}=…) is recorded as a metric; perhaps {meant}= was meant")

    def warn_of_phase(self, name: Any) -> None:
        """Warn of an unknown phase."""
        effect = "it counts as train" if isinstance(name, str) else "the phase stays as it is"
        self.warn("phase", f"phase(%s): there is no such phase, {effect}; one of {', '.join(PHASES)}", name)


def is_phase(name: Any) -> bool:
    """Whether `name` is a phase, or "training", the other spelling of train."""
    return isinstance(name, str) and name.strip().lower() in (*PHASES, "training")


def _is_near(name: str, argument: str) -> bool:
    """Whether the name is the argument's but for case, underlines, a plural or one typing mistake, or a short form."""
    if name in _SHORT_FORMS:
        return _SHORT_FORMS[name] == argument
    given, meant = name.lower().replace("_", ""), argument.replace("_", "")
    # `loss2` and `loss_a` are some of several losses.
    is_one_of_several = not given[-1:].isalpha() or name.count("_") > argument.count("_")
    return given == meant or (not is_one_of_several and _is_one_mistake(given, meant))


def _is_one_mistake(given: str, meant: str) -> bool:
    start = next((at for at, (one, other) in enumerate(zip(given, meant)) if one != other), min(len(given), len(meant)))  # noqa: B905  # as far as both go
    given, meant = given[start:], meant[start:]
    if len(given) != len(meant):
        return given[1:] == meant or given == meant[1:]
    return given[1:] == meant[1:] or (given[1::-1] == meant[:2] and given[2:] == meant[2:])


def _shown(value: Any) -> str:
    # Only the type of a user's object: its repr may wait for a device.
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"<{type(value).__name__}>"
    text = repr(value[:_MAX_SHOWN] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= _MAX_SHOWN + 2 else f"{text[:_MAX_SHOWN]}…"
