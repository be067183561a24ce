"""Nodes of a real cluster are drained by our own reason, and a person's reason always stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.slurm.cluster import DRAINED, Cluster
from tests.waiting import wait_until
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.act.drains import Drains, read_nodes
from trainwarden_remediator.cli import main
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.store.exclusions import Exclusion

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(120)]


@dataclass
class Evidence:
    """What restarts avoid, without a database, and a clock for which a minute passes at each look."""

    wanted: dict[str, Exclusion] = field(default_factory=dict)
    time: float = 1_800_000_000.0
    looks: float = 0.0

    @property
    def exclusions(self) -> Evidence:
        return self

    def of_scheduler(self, _scheduler: str) -> dict[str, dict[str, Exclusion]]:
        return {"17": self.wanted}

    def incident(self, incident_id: str) -> object:
        raise KeyError(incident_id)

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        self.looks += 61
        return self.looks


@pytest.fixture
def evidence(cluster: Cluster) -> Iterator[Evidence]:
    """Before and afterwards the nodes are idle."""
    wait_for(cluster, "idle", *DRAINED)
    yield Evidence()
    for name, node in nodes(cluster).items():
        if node.reason:
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    wait_for(cluster, "idle", *DRAINED)


def wait_for(cluster: Cluster, state: str, *names: str) -> None:
    """Wait until nodes are in a state: one that is resumed counts as not responding until slurmctld has asked it."""

    def probe() -> bool:
        found = nodes(cluster)
        return all(found[name].state == state for name in names)

    wait_until(probe, lambda: f"{names} {state}: {nodes(cluster)}")


def nodes(cluster: Cluster) -> dict[str, SlurmNode]:
    """The nodes of these tests as SLURM shows them."""
    found = read_nodes(slurm_client(cluster.bin, 20))
    assert isinstance(found, list), found
    return {node.name: node for node in found if node.name in DRAINED}


def drains(cluster: Cluster, evidence: Evidence, at_most: int = 2) -> Drains:
    """The service's part."""
    return Drains(slurm_client(cluster.bin, 20), cast("Any", evidence), evidence, at_most)


def test_a_broken_node_is_drained_and_resumed_when_that_is_over(cluster: Cluster, evidence: Evidence) -> None:
    evidence.wanted = {"s1": Exclusion("i-1", evidence.time + 3600)}
    [change] = drains(cluster, evidence).reconcile()
    assert (change.node, change.resume) == ("s1", False)
    node = nodes(cluster)["s1"]
    assert (node.state, node.reason) == ("drained", "trainwarden: incident i-1, until 2027-01-15T09:00:00Z")
    assert drains(cluster, evidence).reconcile() == []
    evidence.wanted = {}  # the job that was restarted is gone
    assert drains(cluster, evidence).reconcile() == []
    evidence.time += 3601
    assert [each.resume for each in drains(cluster, evidence).reconcile()] == [True]
    wait_for(cluster, "idle", "s1")


def test_a_persons_reason_is_neither_replaced_nor_resumed(cluster: Cluster, evidence: Evidence) -> None:
    evidence.wanted = {node: Exclusion("i-1", evidence.time + 3600) for node in ("s1", "s2")}
    cluster.run("scontrol", "update", "NodeName=s1", "State=DRAIN", "Reason=bad DIMM, ticket 5")
    assert [each.node for each in drains(cluster, evidence).reconcile()] == ["s2"]
    cluster.run("scontrol", "update", "NodeName=s2", "State=DRAIN", "Reason=mine now")
    evidence.time += 3601
    assert drains(cluster, evidence).reconcile() == []
    arguments = ["--driver=slurm", f"--slurm-bin-dir={cluster.bin}", "undrain", "s1", "s2"]
    assert main(arguments) == 1
    found = nodes(cluster)
    assert [(found[name].state, found[name].reason) for name in ("s1", "s2")] == [
        ("drained", "bad DIMM, ticket 5"),
        ("drained", "mine now"),
    ]


def test_no_more_nodes_are_drained_than_allowed_and_none_by_default(cluster: Cluster, evidence: Evidence) -> None:
    evidence.wanted = {node: Exclusion("i-1", None) for node in DRAINED}
    assert drains(cluster, evidence, at_most=0).reconcile() == []
    drains(cluster, evidence).reconcile()
    drains(cluster, evidence).reconcile()
    assert [node.state for node in nodes(cluster).values()].count("drained") == 2
    evidence.time += 1e9
    assert drains(cluster, evidence).reconcile() == [], "for good ends by the command alone"


def test_a_person_resumes_our_drain_by_the_command(cluster: Cluster, evidence: Evidence) -> None:
    evidence.wanted = {"s1": Exclusion("i-1", None)}
    drains(cluster, evidence).reconcile()
    assert main(["--driver=slurm", f"--slurm-bin-dir={cluster.bin}", "undrain", "s1"]) == 0
    wait_for(cluster, "idle", "s1")
