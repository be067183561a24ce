"""One node of the cluster, out of its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.slurm.answer import gpus_of_gres, moment, text, words

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each node is in one: the first that applies.
STATES = (
    "down",
    "not_responding",
    "fail",
    "drained",
    "draining",
    "maintenance",
    "rebooting",
    "power_saving",
    "allocated",
    "mixed",
    "completing",
    "idle",
    "unknown",
)
_FLAGS = {
    "down": {"DOWN", "ERROR", "INVALID_REG", "INVAL"},
    "not_responding": {"NOT_RESPONDING", "NO_RESPOND"},
    "fail": {"FAIL", "FAILING"},
    "maintenance": {"MAINT", "MAINTENANCE"},
    "rebooting": {"REBOOT", "REBOOT_ISSUED"},
    "power_saving": {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"},
    "allocated": {"ALLOCATED", "ALLOC"},
    "mixed": {"MIXED"},
    "completing": {"COMPLETING"},
    "idle": {"IDLE"},
}
_AT_WORK = {"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"}
_OUT = {"DRAIN", "DRAINED", "DRAINING"}


@dataclass(frozen=True)
class Node:
    """What slurmctld says of a node.

    Attributes:
        state: one of `STATES`.
        reason: why it takes no jobs; empty where it takes some.
        since: when that was said, Unix seconds.
    """

    name: str
    state: str
    gpus: int
    gpus_allocated: int | None
    reason: str
    user: str
    since: float | None


def read_node(entry: Mapping[str, Any]) -> Node:
    """Read one record; raises `ValueError` if it is none."""
    name = text(entry.get("name"))
    if not name:
        raise ValueError("the record of a node has no name")
    said = words(entry.get("state"), entry.get("state_flags"))
    state = _state(said)
    used = entry.get("gres_used")
    reason = text(entry.get("reason")) if said & _OUT or state in {"down", "fail"} else ""
    return Node(
        name=name,
        state=state,
        gpus=gpus_of_gres(text(entry.get("gres"))),
        gpus_allocated=gpus_of_gres(used) if isinstance(used, str) else None,
        reason=reason,
        user=text(entry.get("reason_set_by_user")),
        since=moment(entry.get("reason_changed_at")) if reason else None,
    )


def _state(said: frozenset[str]) -> str:
    for state in STATES:
        if state == "drained":
            if said & _OUT:
                return "draining" if said & _AT_WORK or "DRAINING" in said else "drained"
        elif said & _FLAGS.get(state, set()):
            return state
    return "unknown"
