"""The machines whose random histories are run: of each kind of scheduler, of several runs, and of nodes with defects.

`python -m tests.unit.remediator.machines [TIMES]` prints how many histories of each had how many starts, and what else.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.session import begin
from tests.unit.remediator.bad_nodes import DRAINED_AT_MOST, BadNodes
from tests.unit.remediator.fake_driver import FakeDriver
from tests.unit.remediator.histories import POLICIES, STATISTICS, AnyOrder
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, Cluster
from tests.unit.remediator.simulated_ray import SimulatedRayDriver
from tests.unit.remediator.simulated_slurm import SimulatedSlurmDriver
from trainwarden_remediator.act.drains import MARK, Drains
from trainwarden_remediator.drivers.driver import CallResult, JobState, RestartTarget, Shape
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.incidents.price import APPROVED
from trainwarden_remediator.policies.limits import ExcludeNodes
from trainwarden_remediator.store.store import Store


class AnyOrderInOneCall(AnyOrder):
    """The same for a scheduler such as the local launcher."""

    two_phase = False


class AnyOrderOfSeveral(AnyOrder):
    """Three runs, each with a job and a node of its own."""

    runs = 3

    @rule(number=st.integers(1, 2), shared=st.booleans())
    def a_job_is_on_the_node_of_another(self, number: int, shared: bool) -> None:  # hypothesis names it
        self.simulation.clusters[number].nodes = ("n1",) if shared else (f"n{number + 1}",)


class SeveralInOneCall(AnyOrderOfSeveral):
    """The same for the local launcher."""

    two_phase = False


class LateCalls(AnyOrder):
    """Calls to end an attempt that take effect once nobody waits for them any more."""

    @rule(number=st.integers(0, 9), requeued=st.booleans())
    def a_call_takes_effect_after_its_incident_has_ended(self, number: int, requeued: bool) -> None:
        """The run goes on by itself, or is started again by the scheduler, while the call is in doubt."""
        cluster, driver = self._numbered(number), self.simulation.driver
        self._let_everything_work()
        cluster.hang()
        driver.faults = ["very late"]
        self._await(lambda: bool(cluster.late), answer=APPROVED)
        if requeued:
            cluster.requeue_by_slurm()
        cluster.steps = True
        self._pass(int(2 * DOUBT_SECONDS), lambda: cluster.state is JobState.HELD)
        self.happened["held by a late call"] += cluster.state is JobState.HELD


class Forgetful(AnyOrder):
    """A scheduler that forgets what it has acknowledged, and so uses counts of starts and ids of jobs again."""

    @rule(seconds=st.integers(1, 9), number=st.integers(0, 9))
    def the_scheduler_forgets_what_it_has_acknowledged(self, seconds: int, number: int) -> None:
        cluster = self._numbered(number)
        if len(cluster.past) >= seconds and not cluster.over:
            cluster.forget(*cluster.past[-seconds])
            self.simulation.driver.boots += 1

    @rule(number=st.integers(0, 9), seconds=st.integers(1, 3))
    def a_start_is_forgotten_as_soon_as_it_was_given(self, number: int, seconds: int) -> None:
        """The controller dies with the call, whose answer is lost."""
        cluster, driver = self._numbered(number), self.simulation.driver
        self._let_everything_work()
        cluster.hang()
        starts = len(cluster.starts)
        before = 1 if cluster.shape is None else 2  # calls: one that ends the old start, perhaps one that submits
        driver.faults = [*["none"] * before, "lost reply, then down"]
        self._await(lambda: len(cluster.starts) > starts, answer=APPROVED)
        if len(cluster.starts) > starts:
            self.the_scheduler_forgets_what_it_has_acknowledged(seconds, number)
        driver.down = False

    @rule(number=st.integers(0, 9))
    def a_start_is_begun_again_under_the_same_count(self, number: int) -> None:
        """The controller dies with the call that ends it, and begins the job once more."""
        cluster, driver = self._numbered(number), self.simulation.driver
        if cluster.state is not JobState.RUNNING or cluster.shape is not None:
            return
        self._let_everything_work()
        cluster.hang()
        generation = cluster.generation
        driver.faults = ["lost reply, then down"]
        self._await(lambda: cluster.generation > generation, answer=APPROVED)
        driver.down = False
        if cluster.generation > generation and not cluster.over:
            cluster.forget((JobState.RUNNING, generation, 0, self.simulation.clock.elapsed))
            driver.boots += 1

    @precondition(lambda self: self.simulation.clock.elapsed > 20)
    @rule(number=st.integers(0, 9))
    def the_id_of_a_lost_job_is_given_to_another(self, number: int) -> None:
        cluster = self._numbered(number)
        if not cluster.over:
            cluster.give_away()
            self.simulation.driver.boots += 1


class ForgetfulOfSeveral(Forgetful, AnyOrderOfSeveral):
    """The same of three runs."""


class AnyOrderOfResubmits(AnyOrder):
    """Jobs that come back under a new id: submitted held, and released."""

    shape = Shape.RESUBMIT

    def __init__(self) -> None:
        super().__init__()
        for cluster in self.simulation.clusters:
            cluster.shape = self.shape


class SeveralResubmits(AnyOrderOfResubmits, AnyOrderOfSeveral):
    """The same of three runs."""


class AnyOrderOfSubmits(AnyOrderOfResubmits):
    """Submitted under an id of the attempt, which starts at once."""

    shape = Shape.SUBMIT


class SeveralSubmits(AnyOrderOfSubmits, AnyOrderOfSeveral):
    """The same of three runs."""


class AnyOrderOfRayJobs(AnyOrderOfSubmits):
    """The driver `ray` itself, with faults of its requests. Ray knows no users."""

    user = None

    def __init__(self) -> None:
        super().__init__()
        simulation = self.simulation
        simulation.driver = SimulatedRayDriver(simulation.clusters, simulation.durable)
        simulation.driver.forbidden = self._why_forbidden
        simulation.restart()

    def a_person_holds_a_job_as_soon_as_it_waits(self, number: int, after_release: bool) -> None:
        """Be no rule of this machine: Ray holds no jobs."""


class ForgetfulRayJobs(AnyOrderOfRayJobs):
    """A head that is started again, and has forgotten its jobs, whose processes are gone: nothing is started again."""

    @precondition(lambda self: self.simulation.clock.elapsed > 20)
    @rule()
    def the_head_is_started_again(self) -> None:
        simulation = self.simulation
        simulation.cluster.lose()
        simulation.driver.boots += 1
        simulation.driver.answer_with_what_was(0)
        self.happened["new heads"] += 1

    def _end(self) -> None:
        super()._end()
        cluster, alerts = self.simulation.cluster, self.simulation.alerts_now()
        # An alert that was refused before, as by a veto or in the mode observe, was answered by that.
        if cluster.lost and alerts and self._of_run(cluster)[-1].state is not State.SUPPRESSED:
            assert cluster.run_id in self._told(), "L4: the run is lost, and nobody is paged"


class SeveralRayJobs(AnyOrderOfRayJobs, AnyOrderOfSeveral):
    """The same of three runs."""


class AnyOrderOfSlurmJobs(AnyOrder):
    """The driver `slurm` itself, with faults of its commands; of jobs that may be requeued."""

    user = os.getuid()

    def __init__(self) -> None:
        super().__init__()
        simulation = self.simulation
        folder = self.folder / "submissions" if simulation.cluster.shape is not None else None
        simulation.driver = SimulatedSlurmDriver(simulation.cluster, simulation.durable, folder)
        simulation.driver.forbidden = self._why_forbidden
        simulation.restart()


class AnyOrderOfSlurmResubmits(AnyOrderOfSlurmJobs, AnyOrderOfResubmits):
    """The same of jobs that may not, and are submitted again."""


class ForgetfulResubmits(Forgetful, AnyOrderOfSlurmResubmits):
    """Of these, a scheduler that forgets jobs, whose ids it gives again."""


NODES = ("bad1", "bad2", "bad3", "users")
USERS = {"users"}
# Reasons that a person gives a node; none where it is given back.
WORDS = ("ticket 5", "look at it", "{} and a fan", "")
EXCLUDES = ExcludeNodes(at_most=2, share=0.1, hours=1)
# So many nodes of a run may be avoided, by the size of the cluster.
MOST: dict[int | None, int] = {None: 1, 1: 0, 5: 1, 40: 2}


class NotingDriver(FakeDriver):
    """Notes which nodes had evidence when an attempt was ended, and checks that its successor avoids them."""

    def __init__(self, cluster: Cluster, durable: Callable[..., Any], nodes: BadNodes) -> None:
        super().__init__([cluster], durable)
        self._nodes = nodes
        self._known: dict[str, set[str]] = {}
        self.most: int | None = None  # None where the policy excludes no nodes

    def prepare(self, target: RestartTarget) -> CallResult:
        self._known.setdefault(target.incident, set(self._nodes.evidence))
        return super().prepare(target)

    def commit(self, target: RestartTarget) -> CallResult:
        [cluster], violations = self.clusters.values(), self._nodes.violations
        answer = super().commit(target)
        known = self._known.get(target.incident, set())
        if self.most is not None and not known <= cluster.excluded:
            violations.append(f"restarted where there was evidence of a defect: {known - cluster.excluded}")
        if len(target.exclude_nodes) > (self.most or 0):
            violations.append(f"more nodes are avoided than may be: {target.exclude_nodes}")
        return answer


class AnyOrderOfBadNodes(AnyOrder):
    """Restarts away from nodes with evidence of a defect, which are drained as well.

    Nothing but the evidence is avoided, and as long as it has to be; what the user's own list has stays in it. A node
    that a person has taken over is left as it is (S10).
    """

    def __init__(self) -> None:
        super().__init__()
        simulation = self.simulation
        self.nodes = BadNodes(simulation.clock, NODES)
        self.driver = NotingDriver(simulation.cluster, simulation.durable, self.nodes)
        self.driver.forbidden = self._why_forbidden
        simulation.driver, simulation.nodes = self.driver, self.nodes
        simulation.drain = self._drains
        simulation.cluster.excluded = set(USERS)
        simulation.restart()

    def _drains(self, store: Store) -> Callable[[], object]:
        client: Any = self.nodes
        made = Drains(client, store, self.simulation.clock, DRAINED_AT_MOST, scheduler=self.driver.name)

        def reconcile() -> None:
            self.nodes.decides = True
            made.reconcile()

        return reconcile

    @initialize(
        size=st.sampled_from([40, 40, 40, 5, 1, None]),
        excludes=st.sampled_from([*[True] * 7, False]),
        broken=st.lists(st.sampled_from(NODES), max_size=3),
        forgiven=st.booleans(),
        person=st.sampled_from(["", "is faster", "takes over"]),
    )
    def it_has_nodes(self, size: int | None, excludes: bool, broken: list[str], forgiven: bool, person: str) -> None:
        """And the first of them break one after the other, perhaps each when there is no more evidence of the last.

        A person may be faster than the first change of a node, or take over what was drained.
        """
        if person == "is faster":
            self.a_person_is_faster_than_a_change_of_a_node("ticket 5")
        self.nodes.size = size
        self.simulation.cluster.hangs = False  # what fails, fails with the evidence or before
        if excludes:
            self.policies = {
                needs: replace(each, limits=each.limits.model_copy(update={"exclude_nodes": EXCLUDES}))
                for needs, each in POLICIES.items()
            }
            self.driver.most = MOST[size]
        self.simulation.policies.take(replace(self.simulation.policies, default=self.policies[self.needs]))
        for node in broken:
            if forgiven:
                self.nodes.evidence.clear()
            self.a_node_breaks_under_the_run(node, hangs=True, then="recovers")
        if person == "takes over":
            self._pass(90)  # nodes are looked at each minute
            self.a_person_takes_a_node_over_or_gives_it_back("users", "{} and a fan", drained=True)

    @rule(node=st.sampled_from(NODES))
    def evidence_appears_or_goes(self, node: str) -> None:
        if node in self.nodes.evidence:
            self.nodes.evidence.remove(node)
        else:
            self.nodes.accuse(node)

    @rule(node=st.sampled_from(NODES), hangs=st.booleans(), then=st.sampled_from(["recovers", "does not recover"]))
    def a_node_breaks_under_the_run(self, node: str, hangs: bool, then: str) -> None:
        self.nodes.down = False
        self.nodes.accuse(node)
        self.a_run_fails_and_is_started_again(0, hangs, then, quietly=True)

    @rule(node=st.sampled_from(NODES))
    def evidence_appears_right_before_the_next_call(self, node: str) -> None:
        self._let_everything_work()
        self.nodes.down = False
        self.simulation.cluster.hang()
        self.simulation.captures.meanwhile = lambda: self.nodes.accuse(node)
        self._await(lambda: self.simulation.captures.meanwhile is None)

    @rule()
    def evidence_cannot_be_read_or_can_be_again(self) -> None:
        self.nodes.down = not self.nodes.down

    @rule(hours=st.sampled_from([0.5, 1, 2]))
    def hours_pass(self, hours: float) -> None:
        self.simulation.clock.elapsed += 3600 * hours
        self.simulation.tick(2)

    @rule(faults=st.lists(st.sampled_from(["refused", "lost", "dropped"]), min_size=1, max_size=3))
    def changes_of_nodes_will_fail(self, faults: list[str]) -> None:
        self.nodes.faults = faults

    @rule(node=st.sampled_from(NODES), word=st.sampled_from(WORDS), drained=st.booleans())
    def a_person_takes_a_node_over_or_gives_it_back(self, node: str, word: str, drained: bool) -> None:
        """One that is drained by a call, if there is one and `drained`; else the node."""
        ours = [name for name in NODES if self.nodes.is_ours(name)] if drained else []
        self._take(ours[0] if ours else node, word)

    @rule(word=st.sampled_from(WORDS[:-1]))
    def a_person_is_faster_than_a_change_of_a_node(self, word: str) -> None:
        """The remediator has looked, and is about to drain or to resume it."""

        def is_done() -> bool:
            nodes, avoided = self.nodes, self.simulation.cluster.excluded - USERS
            due = [each for each in NODES if (each in avoided and not nodes.listed[each].reason) or nodes.is_over(each)]
            for each in due:
                self._take(each, word)
            return bool(due)

        self.nodes.meanwhile = is_done

    def _take(self, node: str, word: str) -> None:
        state = "idle" if word in ("", "look at it") else "drained"
        self.nodes.take(node, state, word.format(self.nodes.listed[node].reason))

    @invariant()
    def nodes_are_avoided_and_drained_as_they_may_be(self) -> None:
        nodes, excluded = self.nodes, self.simulation.cluster.excluded
        self.happened["nodes avoided"] += bool(excluded - USERS)
        self.happened["nodes drained"] += any(each.reason.startswith(MARK) for each in nodes.listed.values())
        assert nodes.violations == [], nodes.violations
        assert excluded >= USERS, "a node of the user's own list is not avoided any more"
        allowed = nodes.ever if self.driver.most is not None else set()
        assert excluded - USERS <= allowed, "avoided without evidence"
        assert len(excluded - USERS) <= (self.driver.most or 0), "more nodes are avoided than may be"

    def _end(self) -> None:
        self.nodes.down, self.nodes.faults, self.nodes.meanwhile = False, [], None
        self.nodes.evidence.clear()
        super()._end()
        simulation, cluster = self.simulation, self.simulation.cluster
        simulation.clock.elapsed += 10 * 24 * 3600.0
        if not cluster.over:
            cluster.state = JobState.WAITING  # SLURM changes no job that runs
        simulation.tick(30, every=1)
        simulation.clock.elapsed += 120
        simulation.tick(5)
        self.nodes_are_avoided_and_drained_as_they_may_be()
        assert self.nodes.drained_too_long() == [], "a drain has no end"
        if not cluster.over:
            assert cluster.excluded == USERS, "an exclusion has no end"
            assert simulation.store.exclusions.of_scheduler(self.driver.name).get(cluster.job_id, {}) == {}


# How many histories of each find the mutations, 500 and more; those of three runs take several times as long.
SHARES: dict[type[AnyOrder], int] = {
    AnyOrder: 150,
    AnyOrderInOneCall: 90,
    LateCalls: 15,
    Forgetful: 140,
    AnyOrderOfSeveral: 25,
    SeveralInOneCall: 15,
    ForgetfulOfSeveral: 25,
    AnyOrderOfResubmits: 15,
    AnyOrderOfSubmits: 10,
    SeveralResubmits: 5,
    SeveralSubmits: 5,
    AnyOrderOfRayJobs: 15,
    ForgetfulRayJobs: 15,
    SeveralRayJobs: 5,
    AnyOrderOfSlurmJobs: 15,
    AnyOrderOfSlurmResubmits: 15,
    ForgetfulResubmits: 15,
    AnyOrderOfBadNodes: 30,
}
# How many times as many `make test` runs, and `make test-nightly`.
SHORT, LONG = 0.06, int(os.environ.get("TRAINWARDEN_HISTORIES", "10000")) / sum(SHARES.values())
lengths = pytest.mark.parametrize(
    "times", [pytest.param(SHORT, id="some"), pytest.param(LONG, id="many", marks=pytest.mark.nightly)]
)
_SETTINGS = settings(stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def histories_of(machine: type[AnyOrder], times: float) -> int:
    """Return how many histories of a machine are run, three at least."""
    return max(3, math.ceil(SHARES[machine] * times))


def run(machine: type[AnyOrder], histories: int, *, shrink: bool = True, seed: int | None = None) -> None:
    """Run so many histories of a machine; raise the first violation, made small unless that is not to `shrink`.

    They are the same each time; others by another `seed`.
    """
    if seed is not None:
        machine = hypothesis.seed(seed)(type(machine.__name__, (machine,), {}))
    case = machine.TestCase
    phases = tuple(Phase) if shrink else (Phase.generate,)
    case.settings = settings(_SETTINGS, max_examples=max(1, histories), phases=phases)
    case("runTest").runTest()


def main(times: float = 1.0) -> None:
    """Print what the histories consist of that find the mutations, or `times` as many."""
    session = begin()
    for machine, share in SHARES.items():
        run(machine, int(share * times))
        found = STATISTICS[machine.__name__]
        total = found.pop("histories")
        print(f"{machine.__name__}: {total} histories, of which had")
        for what, count in sorted(found.items()):
            print(f"  {count:6d}  {count / total:4.0%}  {what}")
    session.end()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
