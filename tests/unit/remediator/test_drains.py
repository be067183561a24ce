"""Which nodes are drained and resumed: by our own reason alone, and never more than allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.simulated_cluster import FakeClock
from trainwarden.clients.slurm.client import ControlResult
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.act.drains import Change, Drains, changes, is_over, reason_of, undrain
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.store import Store

NOW = 1_800_000_000.0
OURS = reason_of("i-1", NOW)


def node(name: str, state: str = "idle", reason: str = "") -> SlurmNode:
    return SlurmNode(name, state, 8, 0, reason, "root" if reason else "", None)


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "reserved"])
def test_a_node_in_use_that_restarts_avoid_is_drained(state: str) -> None:
    wanted = {"n1": Exclusion("i-2", NOW + 60)}
    expected = Change("n1", resume=False, reason="trainwarden: incident i-2, until 2027-01-15T08:01:00Z")
    assert changes([node("n1", state), node("n2")], wanted, NOW, 2) == [expected]


@pytest.mark.parametrize(
    "found", [node("n1", "drained", "ticket 5"), node("n1", "down"), node("n1", "idle", "look at it"), node("n2")]
)
def test_a_node_that_is_out_of_use_or_that_a_person_has_marked_is_left(found: SlurmNode) -> None:
    assert changes([found], {"n1": Exclusion("i-2", NOW + 60)}, NOW, 2) == []


def test_a_drain_that_is_over_is_resumed_and_makes_room() -> None:
    nodes = [node("n1", "drained", OURS), node("n2"), node("n3")]
    wanted = {name: Exclusion("i-2", None) for name in ("n2", "n3")}
    resumed = Change("n1", resume=True, reason=OURS)
    drained = Change("n2", resume=False, reason="trainwarden: incident i-2, until resumed")
    assert changes(nodes, wanted, NOW, 1) == [resumed, drained]
    assert changes(nodes, wanted, NOW - 1, 1) == []


def test_a_node_that_cannot_be_resumed_makes_no_room(tmp_path: Path) -> None:
    class Client:
        drained: list[str] = []  # noqa: RUF012  # of one test

        def nodes(self) -> list[SlurmNode]:
            return [node("n1", "drained", OURS), node("n2")]

        def update_node(self, name: str, **fields: str) -> ControlResult:
            if fields["State"] == "DRAIN":
                self.drained.append(name)
            return ControlResult(accepted=False, refused=True, detail="Access denied")

    engine = open_database(tmp_path)
    clock = FakeClock()
    store = Store(engine, clock)
    noted = {"17": {"n2": Exclusion("i-2", None)}}
    store.exclusions.of_scheduler = lambda scheduler: noted  # type: ignore[method-assign]
    client: Any = Client()
    drains = Drains(client, store, clock, 1)
    for _ in range(3):
        clock.elapsed += 61
        assert drains.reconcile() == []
    assert client.drained == []
    engine.dispose()


@pytest.mark.parametrize(
    "reason", ["", "ticket 5", f"{OURS} see ticket 5", "trainwarden: mine", reason_of("i-1", None), OURS.upper()]
)
def test_no_other_reason_than_ours_ends_by_itself(reason: str) -> None:
    assert not is_over(reason, NOW + 1e9)
    assert is_over(OURS, NOW)


def test_a_drain_of_a_person_is_not_resumed_by_the_command_and_takes_no_room() -> None:
    theirs = node("n1", "drained", "ticket 5")

    class Client:
        def nodes(self) -> list[SlurmNode]:
            return [theirs, node("n2", "drained", OURS)]

        def update_node(self, name: str, **fields: str) -> ControlResult:
            assert (name, fields) == ("n2", {"State": "RESUME"})
            return ControlResult(accepted=True, refused=False, detail="")

    client: Any = Client()
    problems = undrain(client, ["n1", "n2", "n9"])
    assert problems == ["n1: not drained by Trainwarden: ticket 5", "n9: no such node"]
    [change] = changes([theirs, node("n3")], {"n3": Exclusion("i-2", None)}, NOW, 1)
    assert (change.node, change.resume) == ("n3", False)
