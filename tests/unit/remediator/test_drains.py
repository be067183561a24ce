"""Which nodes are drained and resumed: by our own reason alone, and never more than allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.remediator.simulated_cluster import FakeClock
from trainwarden.clients.slurm.client import ControlResult
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.act.drains import Change, Drains, changes, is_over, reason_of, undrain
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.incidents.incident import Action, Incident, State
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.store import Store

NOW = 1_800_000_000.0
OURS = reason_of("i-1", NOW)


def node(name: str, state: str = "idle", reason: str = "") -> SlurmNode:
    return SlurmNode(name, state, 8, 0, reason, "root" if reason else "", None)


def incident(incident_id: str, evidence: float) -> Incident:
    return Incident(
        id=incident_id, run_id="r", attempt=0, attempt_key=f"slurm:17:{incident_id[-1]}", job_id="17",
        scheduler="slurm", alert="TrainGpuLost", failure_mode="crash", error_type=None, state=State.DONE,
        action=Action.RESTART, reason="", policy="", budget_used=None, budget_limit=None, step_before=None,
        created=NOW, updated=NOW, exclude_nodes=json.dumps({"n2": evidence}),
    )  # fmt: skip


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


def test_a_node_that_a_person_has_resumed_is_not_drained_again_for_the_same_evidence(tmp_path: Path) -> None:
    class Client:
        """Lists one node, and changes it."""

        listed = node("n2")

        def nodes(self) -> list[SlurmNode]:
            return [self.listed]

        def update_node(self, name: str, **fields: str) -> ControlResult:
            self.listed = node(name, "drained" if fields["State"] == "DRAIN" else "idle", fields.get("Reason", ""))
            return ControlResult(accepted=True, refused=False, detail="ok")

    clock, client = FakeClock(), Client()
    engine = open_database(tmp_path)
    store = Store(engine, clock)
    for incident_id, evidence in (("i-2", NOW), ("i-3", NOW), ("i-4", NOW + 3600)):
        store.add(incident(incident_id, evidence))
    noted = {"17": {"n2": Exclusion("i-2", NOW + 86_400)}}
    store.exclusions.of_scheduler = lambda scheduler: noted  # type: ignore[method-assign]
    drains = Drains(cast("Any", client), store, clock, 1)

    def drained() -> bool:
        clock.elapsed += 61
        return bool(drains.reconcile())

    assert drained()
    assert undrain(cast("Any", client), ["n2"]) == []
    assert not drained()
    drains = Drains(cast("Any", client), store, clock, 1)
    assert not drained(), "a new process knows of it"
    noted["17"]["n2"] = Exclusion("i-3", NOW + 86_400)
    assert not drained(), "another restart avoids it still"
    clock.elapsed += 3600
    noted["17"]["n2"] = Exclusion("i-4", NOW + 90_000)
    assert drained(), "there was evidence once more"
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
