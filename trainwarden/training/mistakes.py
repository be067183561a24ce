"""Calls that make no sense: each kind is said once, and none ever stands in the training's way."""

import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from trainwarden.record.place import PHASES

# The library's own lines in `events.jsonl`: who reads it must be able to rely on them.
RESERVED_EVENTS = frozenset(
    (
        "training_started",
        "attempt_lost",
        "phase_changed",
        "epoch_started",
        "checkpoint_saved",
        "gpu_stats",
        "error",
        "lines_dropped",
        "training_completed",
    )
)
_MAX_SHOWN = 60

logger = logging.getLogger("trainwarden")


class Mistakes:
    """One warning for each kind of mistake. The kinds are few and fixed, whatever the training passes."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, kind: str, text: str, *values: Any) -> None:
        """Warn, the first time for this kind; `text` has a %s for each value. Never raises."""
        if kind in self._told:
            return
        self._told.add(kind)
        with contextlib.suppress(Exception):
            logger.warning(f"{text}; this is said once", *map(_shown, values))  # noqa: G004  # the values stay apart

    def in_report(self, wrong: Iterable[str], values: Mapping[str, Any]) -> None:
        """Warn of those arguments of `step()` that could not be taken."""
        for name in wrong:
            if name == "step":
                self.tell(name, "step(%s): no whole number, 0 or more: the step is not recorded", values[name])
            else:
                self.tell(name, f"step(…, {name}=%s): no number: it is not recorded", values[name])

    def in_phase(self, name: Any) -> None:
        """Warn of a phase that does not exist."""
        became = "it counts as train" if isinstance(name, str) else "the phase stays as it is"
        self.tell("phase", f"phase(%s): there is no such phase, {became}; one of {', '.join(PHASES)}", name)


def is_phase(name: Any) -> bool:
    """Whether `phase()` knows that name, or its other spelling "training"."""
    return isinstance(name, str) and name.strip().lower() in (*PHASES, "training")


def _shown(value: Any) -> str:
    # Of the user's own objects only the type: to show one may mean to wait for a device.
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"<{type(value).__name__}>"
    text = repr(value[:_MAX_SHOWN] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= _MAX_SHOWN + 2 else f"{text[:_MAX_SHOWN]}…"
