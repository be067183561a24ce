"""One node of `scontrol show nodes --json`, or of `sinfo --json` before 23.02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.fields import gpus_of_gres, state_flags, text, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each node is in one: the first that applies.
NODE_STATES = (
    "future",
    "down",
    "rebooting",
    "powering_up",
    "powering_down",
    "not_responding",
    "fail",
    "drained",
    "draining",
    "maintenance",
    "reboot_requested",
    "power_saving",
    "allocated",
    "mixed",
    "completing",
    "blocked",
    "planned",
    "reserved",
    "idle",
    "unknown",
)
_FLAGS = {
    # Defined, and not there.
    "future": {"FUTURE", "DYNAMIC_FUTURE"},
    "down": {"DOWN", "ERROR", "INVALID_REG", "INVAL"},
    # A node that starts or stops does not respond, and is not to be taken for one that is lost.
    "rebooting": {"REBOOT", "REBOOT_ISSUED"},
    "powering_up": {"POWERING_UP", "POWER_UP"},
    "powering_down": {"POWERING_DOWN", "POWER_DOWN"},
    "not_responding": {"NOT_RESPONDING", "NO_RESPOND"},
    "fail": {"FAIL", "FAILING"},
    "maintenance": {"MAINT", "MAINTENANCE"},
    "reboot_requested": {"REBOOT_REQUESTED"},
    "power_saving": {"POWERED_DOWN"},
    "allocated": {"ALLOCATED", "ALLOC"},
    "mixed": {"MIXED"},
    "completing": {"COMPLETING"},
    "blocked": {"BLOCKED"},
    "planned": {"PLANNED"},
    "reserved": {"RESERVED", "RESV"},
    "idle": {"IDLE"},
}
_AT_WORK = {"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"}
_OUT = {"DRAIN", "DRAINED", "DRAINING"}


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One record of a node.

    Attributes:
        state: one of `NODE_STATES`.
        gpus, gpus_allocated: None where the record has none.
        reason: why it takes no jobs; empty where it takes some.
        user: the user that gave the reason.
        since: when, Unix seconds.
    """

    name: str
    state: str
    gpus: int
    gpus_allocated: int | None
    reason: str
    user: str
    since: float | None


def read_node(entry: Mapping[str, Any]) -> SlurmNode:
    """Read one record; raises `ValueError` if it does not name its node."""
    name = text(entry.get("name")) if isinstance(entry, dict) else ""
    if not name:
        raise ValueError("the record of a node has no name")
    flags = state_flags(entry.get("state"), entry.get("state_flags"))
    state = _state(flags)
    used = entry.get("gres_used")
    reason = text(entry.get("reason")) if flags & _OUT or state in {"down", "fail"} else ""
    return SlurmNode(
        name=name,
        state=state,
        gpus=gpus_of_gres(text(entry.get("gres"))),
        gpus_allocated=gpus_of_gres(used) if isinstance(used, str) else None,
        reason=reason,
        user=text(entry.get("reason_set_by_user")),
        since=timestamp(entry.get("reason_changed_at")) if reason else None,
    )


def _state(flags: frozenset[str]) -> str:
    for state in NODE_STATES:
        if state == "drained":
            if flags & _OUT:
                return "draining" if flags & _AT_WORK or "DRAINING" in flags else "drained"
        elif flags & _FLAGS.get(state, set()):
            return state
    return "unknown"
