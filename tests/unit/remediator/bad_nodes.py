"""The nodes of a cluster in the world of simulation.py: evidence against them, and SLURM's list of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tests.unit.remediator.simulated_cluster import FakeClock
from trainwarden.clients.slurm.client import ControlResult
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden.record.clock import from_iso
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.observe.nodes import SuspectNodes

DRAINED_AT_MOST = 1


class BadNodes:
    """A NodeSource and the client of SLURM's nodes. `violations` collects what must never be done to a node.

    Attributes:
        evidence: nodes that have some now; `ever`: that have had some.
        size: how many nodes the cluster has; None where that is unknown.
        down: whether the evidence cannot be read.
        faults: what becomes of the next changes of nodes, in order: refused, lost (made, without an answer), dropped.
        meanwhile: what a person does right after the nodes were listed for a decision, once it returns that it is done.
        decides: whether the next list is for a decision.
    """

    def __init__(self, clock: FakeClock, names: Collection[str]) -> None:
        self._clock = clock
        self.evidence: set[str] = set()
        self.ever: set[str] = set()
        self.size: int | None = None
        self.down = False
        self.listed = {name: SlurmNode(name, "idle", 8, 0, "", "", None) for name in names}
        self.faults: list[str] = []
        self.meanwhile: Callable[[], bool] | None = None
        self.decides = False
        self.violations: list[str] = []
        self._drained: set[str] = set()  # the reasons that were given to nodes by calls

    def accuse(self, node: str) -> None:
        """Let there be evidence against a node."""
        self.evidence.add(node)
        self.ever.add(node)

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        """The NodeSource: each run has all of these nodes."""
        if self.down:
            return Unknown("Alertmanager is down")
        return SuspectNodes(dict.fromkeys(sorted(self.evidence), "TrainGpuLost"), self.size)

    def of_jobs(self, _job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        return {}

    def nodes(self) -> list[SlurmNode]:
        """List the nodes; right after the first time in a round a person may be faster than what follows from it."""
        found = list(self.listed.values())
        if self.decides and self.meanwhile is not None and self.meanwhile():
            self.meanwhile = None
        self.decides = False
        return found

    def update_node(self, name: str, **fields: str) -> ControlResult:
        """Make a change as SLURM does, which asks for no reason."""
        node, drains = self.listed[name], fields["State"] == "DRAIN"
        if drains:
            self._check_drain(node)
        elif not self.is_over(name):
            self.violations.append(f"S10: {name} was resumed, whose reason is {node.reason!r}")
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refused":
            return ControlResult(accepted=False, refused=True, detail="Access denied")
        if fault != "dropped":
            reason = fields.get("Reason", "")
            self._drained |= {reason}
            self.listed[name] = replace(node, state="drained" if drains else "idle", reason=reason)
        return ControlResult(accepted=not fault, refused=False, detail="ok")

    def _check_drain(self, node: SlurmNode) -> None:
        if node.reason or node.state != "idle":
            self.violations.append(f"S10: {node.name} was drained, which is {node.state} for {node.reason!r}")
        if node.name not in self.ever:
            self.violations.append(f"{node.name} was drained without evidence")
        if sum(map(self.is_ours, self.listed)) >= DRAINED_AT_MOST:
            self.violations.append(f"{node.name} was drained, one more than may be")

    def drained_too_long(self) -> list[str]:
        """Return the nodes whose drain by us is over and that nobody has resumed."""
        return [name for name in self.listed if self.is_over(name)]

    def is_ours(self, name: str) -> bool:
        """Return whether a call has given a node the reason that it has."""
        reason = self.listed[name].reason
        return bool(reason) and reason in self._drained

    def is_over(self, name: str) -> bool:
        """Return whether the drain of a node by a call has ended."""
        end = from_iso(self.listed[name].reason.rpartition(" until ")[2]) if self.is_ours(name) else None
        return end is not None and end <= self._clock.now()

    def take(self, name: str, state: str, reason: str) -> None:
        """A person changes a node."""
        self.listed[name] = replace(self.listed[name], state=state, reason=reason)
