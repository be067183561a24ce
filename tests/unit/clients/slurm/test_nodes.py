"""A record of a node becomes one state, its GPUs and why it is out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import cases
from tests.unit.clients.slurm.commands import node_22_05, node_24_05
from trainwarden.clients.slurm.nodes import NODE_STATES, read_node


@cases(
    ("entry", "state"),
    [
        (node_22_05(), "mixed"),
        (node_22_05(state="idle"), "idle"),
        (node_22_05(state_flags=["DRAIN"]), "draining"),
        (node_22_05(state="idle", state_flags=["DRAIN"]), "drained"),
        (node_22_05(state="down", state_flags=["DRAIN", "NOT_RESPONDING"]), "down"),
        (node_24_05(), "mixed"),
        (node_24_05(state=["IDLE", "DRAIN"]), "drained"),
        (node_24_05(state=["ALLOCATED", "DRAIN"]), "draining"),
        (node_24_05(state=["ALLOCATED", "NOT_RESPONDING"]), "not_responding"),
        (node_24_05(state=["IDLE", "MAINTENANCE", "RESERVED"]), "maintenance"),
        (node_24_05(state=["IDLE", "CLOUD", "POWERED_DOWN"]), "power_saving"),
        (node_24_05(state=["IDLE", "COMPLETING"]), "completing"),
        (node_24_05(state="ALLOCATED+REBOOT_ISSUED"), "rebooting"),
        (node_24_05(state=["ALLOCATED", "REBOOT_REQUESTED"]), "reboot_requested"),
        (node_24_05(state=["IDLE", "DRAIN", "REBOOT_ISSUED"]), "rebooting"),
        (node_24_05(state=["FUTURE"]), "future"),
        (node_24_05(state=["IDLE", "DYNAMIC_FUTURE"]), "future"),
        (node_24_05(state=["IDLE", "CLOUD", "POWERING_UP", "NOT_RESPONDING"]), "powering_up"),
        (node_24_05(state=["ALLOCATED", "CLOUD", "POWERING_UP"]), "powering_up"),
        (node_24_05(state=["IDLE", "CLOUD", "POWERING_DOWN"]), "powering_down"),
        (node_24_05(state=["DOWN", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"]), "down"),
        (node_24_05(state=["IDLE", "PLANNED"]), "planned"),
        (node_24_05(state=["ALLOCATED", "PLANNED"]), "allocated"),
        (node_24_05(state=["IDLE", "BLOCKED"]), "blocked"),
        (node_24_05(state=["IDLE", "RESERVED"]), "reserved"),
        (node_24_05(state=["IDLE", "DRAIN", "INVALID_REG"]), "down"),
        (node_24_05(state=["IDLE", "DYNAMIC_NORM"]), "idle"),
        (node_24_05(state=["SOMETHING_NEW"]), "unknown"),
        (node_24_05(state=None), "unknown"),
    ],
)
def test_a_node_is_in_one_state(entry: dict[str, Any], state: str) -> None:
    assert state in NODE_STATES
    assert read_node(entry).state == state


@cases(
    "entry",
    [
        node_22_05(state_flags=["DRAIN"], reason="bad gpu", reason_set_by_user="root", reason_changed_at=1795271879),
        node_24_05(
            state=["IDLE", "DRAIN"],
            reason="bad gpu",
            reason_set_by_user="root",
            reason_changed_at={"set": True, "infinite": False, "number": 1795271879},
        ),
        node_24_05(
            state=["DOWN"],
            reason="bad gpu",
            reason_set_by_user="root",
            reason_changed_at={"set": True, "infinite": False, "number": 1795271879},
        ),
    ],
)
def test_a_node_that_is_out_gives_the_reason_and_since_when(entry: dict[str, Any]) -> None:
    node = read_node(entry)
    assert (node.reason, node.user, node.since) == ("bad gpu", "root", 1795271879)


def test_the_reason_that_stays_behind_on_a_node_at_work_is_none() -> None:
    node = read_node(node_22_05(reason="was bad", reason_changed_at=1795271879))
    assert (node.reason, node.since) == ("", None)


@cases(
    ("gres", "used", "gpus", "allocated"),
    [
        ("gpu:4", "gpu:3", 4, 3),
        ("gpu:h100:8(S:0-1)", "gpu:h100:6(IDX:0-5)", 8, 6),
        ("gpu:h100:8(S:0-1),gpu:a100:2(S:1)", "gpu:h100:1(IDX:0),gpu:a100:0(IDX:N/A)", 10, 1),
        ("nic:2,gpu,shard:gpu:8", "gpu:0", 1, 0),
        ("", "", 0, 0),
        ("(null)", None, 0, None),
    ],
)
def test_gpus_are_counted_over_all_types(gres: str, used: Any, gpus: int, allocated: int | None) -> None:
    node = read_node(node_24_05(gres=gres, gres_used=used))
    assert (node.gpus, node.gpus_allocated) == (gpus, allocated)


def test_a_record_without_a_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="no name"):
        read_node({"state": "idle"})
