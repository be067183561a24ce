"""Killed before and after each commit and each call, on every path that acts: what is done is done once, and finished.

Each path is a row of `PATHS`. It is run once without a death, which lists its points; then once for each point, or
for three of them in `make test`, dying there. A death is an exception that nothing in the product catches: what was not
committed is lost, as with SIGKILL. The restart by the simulated schedulers is in test_faults.py; the real process,
which is killed by a signal, in tests/integration/remediator/test_killed_anywhere.py.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from tests.unit.remediator import test_canary_job
from tests.unit.remediator.fake_slurm import FakeSlurm
from tests.unit.remediator.simulated_cluster import DOUBT_SECONDS, JOB, RUN, Cluster, FakeClock
from tests.unit.remediator.simulated_ray import SimulatedRayDriver
from tests.unit.remediator.simulation import Crash, Simulation, kills, spread
from tests.unit.remediator.test_limits import Nodes
from trainwarden.clients.http import CONNECTION, HttpError, HttpResponse
from trainwarden.clients.slurm.client import ControlResult, SlurmClient
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden_remediator.act.drains import Drains
from trainwarden_remediator.canary_job import keeper as canary_job_keeper
from trainwarden_remediator.canary_job.canary_job import RUN_ID
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.driver import CallOutcome, JobState, Shape
from trainwarden_remediator.drivers.local import LocalDriver
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_resubmit import Resubmission
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.nodes import SuspectNodes
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import load_policy
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import stored_timers

HOUR = 3600.0


class Acting(Protocol):
    """Something that acts, and dies at the point whose number is `crash_at`; `points` are those that it has passed."""

    points: list[str]
    crash_at: int | None
    crashes: int

    def act(self) -> None:
        """Run to the end; a new process goes on after a death."""

    def check(self) -> None:
        """Assert that everything was done, and once."""

    def close(self) -> None:
        """Let go of files."""


class Restarting(Simulation):
    """The restart of one run; the paths below add what is done around it."""

    def act(self) -> None:
        self.settle(hurry=True)

    def check(self) -> None:
        assert self.our_starts == [0]
        assert self.store.of_run(self.cluster.run_id)[-1].state is State.DONE
        assert self.cluster.violations == []
        assert self.store.pending() == []
        assert stored_timers(self.store.transactions) == [], "nothing is waited for any more"


class CapturedBefore(Restarting):
    """Captures what the run shows, for some seconds, and then ends it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.captures.seconds = 4.0

    def check(self) -> None:
        super().check()
        [incident] = self.store.of_run(RUN)
        assert incident.stacks == self.captures.found.text
        assert 1 <= self.captures.begins <= 2


class RestartedElsewhere(Restarting):
    """Excludes a node before the release, and takes it back when that is over and the job waits."""

    def __init__(self, folder: Path) -> None:
        limits = Limits.model_validate({"exclude_nodes": {"hours": 1}})
        super().__init__(folder, policy=replace(load_policy("default"), limits=limits))
        self.nodes = Nodes(SuspectNodes({"bad1": "TrainGpuLost"}, 100))
        self.cluster.excluded = {"of-its-user"}
        self.restart()

    def act(self) -> None:
        self.settle(hurry=True)
        assert self.cluster.excluded == {"of-its-user", "bad1"}
        self.clock.elapsed += HOUR
        self.cluster.state = JobState.WAITING
        for _ in range(4):
            self.clock.elapsed += 60
            self.tick(2)

    def check(self) -> None:
        super().check()
        assert self.cluster.excluded == {"of-its-user"}, "no more is taken back than was added"
        assert self.store.exclusions.of_scheduler("sim") == {}


class CanaryHealed(Restarting):
    """The canary's job hangs, and is healed although the mode is observe."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster.run_id = RUN_ID
        self.policies.canary_job, self.policies.mode = True, "observe"


class LauncherHttp:
    """The launcher of `trainwarden up` over HTTP, around the truth of one job."""

    def __init__(self, path: LocalRestart, cluster: Cluster) -> None:
        self._path = path
        self._cluster = cluster
        self.posts = 0

    def get(self, path: str) -> HttpResponse:
        assert path == "/jobs"
        job = {"job_id": JOB, "run_id": RUN, "generation": self._cluster.generation, "tokens": self._cluster.tokens}
        names = {JobState.RUNNING: "running", JobState.ENDING: "stopping", JobState.FAILED: "failed"}
        return HttpResponse(200, json.dumps([{**job, "state": names[self._cluster.state]}]).encode())

    def post(self, path: str, body: Mapping[str, Any]) -> HttpResponse:
        assert path == f"/jobs/{JOB}/restart"
        self.posts += 1
        assert self._path.durable(body["token"]) is not None, "S5"
        done = self._cluster.launcher_restart(body["token"], body["expected_generation"])
        if self.posts == 1:
            raise HttpError(CONNECTION, "connection: reset")  # its answer is lost
        return HttpResponse(202 if done is CallOutcome.ACCEPTED else 409, b"{}")


class LocalRestart(Restarting):
    """The driver `local`, whose one call ends and starts; its first answer is lost."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, two_phase=False)
        driver: Any = LocalDriver("http://127.0.0.1:1", "token", 1.0)
        driver.name, driver._http = "sim", LauncherHttp(self, self.cluster)
        self.driver = driver
        self.restart()

    def act(self) -> None:
        for _ in range(150):
            self.tick()
            if self.store.of_run(RUN) and not self.store.open_incidents():
                break


class RayRestart(Restarting):
    """The driver `ray`: stop, await the end, submit. Two answers are lost."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, shape=Shape.SUBMIT)
        self.driver = SimulatedRayDriver(self.clusters, self.durable)
        self.driver.faults = ["lost reply", "lost reply"]
        self.restart()

    def act(self) -> None:
        for _ in range(400):
            self.tick()
            if self.store.of_run(RUN) and not self.store.open_incidents():
                break


class SlurmRequeue(Restarting):
    """The driver `slurm`: requeuehold, await the end, release. The first two answers are lost."""

    requeue = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, shape=None if self.requeue else Shape.RESUBMIT)
        self.slurm = FakeSlurm(self.cluster, requeue=self.requeue)
        client = cast("SlurmClient", self.slurm)
        resubmission = None if self.requeue else Resubmission(client, folder / "submissions")
        driver: Any = SlurmDriver(client, {os.getuid()}, resubmission)
        driver.name = "sim"
        self.driver = driver
        self.restart()

    def act(self) -> None:
        for _ in range(400):
            self.tick()
            if self.store.of_run(RUN) and not self.store.open_incidents():
                break
        self.clock.elapsed += 2 * DOUBT_SECONDS
        self.tick(3)

    def check(self) -> None:
        super().check()
        held = [each for each in self.cluster.submissions.values() if each.state is JobState.HELD]
        assert held == [], "of several that were submitted the others are discarded"
        [incident] = self.store.of_run(RUN)
        assert f"trainwarden-hold:{incident.id}:0" in self.slurm.comments[JOB]


class SlurmResubmit(SlurmRequeue):
    """The same of a job that must not be requeued: scancel, await the end, sbatch --hold, release."""

    requeue = False


class SweptAfterLoss(Restarting):
    """The database is lost while a job is held for an incident of it: the sweep releases the job, once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.crash_at_name = "prepare: after call"
        while not self.crashes:
            self.clock.elapsed += 1
            self.cluster.tick()
            try:
                self.worker.tick()
            except Crash:
                self.lose_database()
        self.crashes = 0
        self.restart()

    def act(self) -> None:
        self.tick(200, every=5)
        super().act()
        self.tick(70, every=5)


class SweptTwin(Restarting):
    """A job is submitted twice, as the first call takes effect late: the sweep discards what is one too many."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, shape=Shape.RESUBMIT)
        self.driver.faults = ["none", "late"]
        self.driver.late_seconds = DOUBT_SECONDS + 30

    def act(self) -> None:
        super().act()
        self.clock.elapsed += 2 * DOUBT_SECONDS
        self.tick(3)

    def check(self) -> None:
        super().check()
        # None too many where the process died before the call: then it is late once.
        submitted = sum(each.startswith("submit") for each in self.driver.calls)
        cancelled = [JobState.CANCELLED] * (submitted - 1)
        assert [each.state for each in self.cluster.submissions.values()] == cancelled


class UndoneLate(Restarting):
    """A call takes effect late, on the start that SLURM has given itself after a node died: that is released again."""

    def act(self) -> None:
        self.driver.faults = ["late"]
        while not self.cluster.late:
            self.tick()
        self.cluster.requeue_by_slurm()
        super().act()

    def check(self) -> None:
        assert self.our_starts == [1]
        assert self.cluster.generation == 2
        assert self.cluster.state is JobState.RUNNING
        assert self.store.of_run(RUN)[0].state is State.DONE
        assert self.store.open_incidents() == []
        assert self.cluster.violations == []


class Dying(ABC):
    """A path without a simulated run. `step` is repeated, by a new process after a death."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.crash_at: int | None = None
        self.crashes = 0
        self.steps = 12

    def point(self, name: str) -> None:
        self.points.append(name)
        if self.crash_at is not None and len(self.points) > self.crash_at:
            self.crash_at = None
            self.crashes += 1
            raise Crash(name)

    def act(self) -> None:
        for number in range(self.steps):
            try:
                self.step(number)
            except Crash:  # noqa: PERF203
                self.restart()

    @abstractmethod
    def step(self, number: int) -> None:
        """Take the path a step further."""

    @abstractmethod
    def restart(self) -> None:
        """Begin a new process."""

    @abstractmethod
    def check(self) -> None:
        """Assert that all is as it must be in the end."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Nothing is held."""


class NodesOf:
    """The client of SLURM, for nodes."""

    def __init__(self, path: Draining) -> None:
        self.nodes = lambda: list(path.nodes.values())
        self.update_node = path.update_node


class Draining(Dying):
    """Drains a node for an hour, and resumes it; a person has drained another, and takes a third one over."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir()
        self.clock = FakeClock()
        self.nodes = {name: SlurmNode(name, "idle", 8, 0, "", "", None) for name in ("bad1", "theirs", "taken")}
        self.drain("theirs", "ticket 5")
        self.updates: list[tuple[str, str]] = []
        self.engine = open_database(folder)
        self.simulation = Simulation(folder)  # its incident is the reason of the drains
        [incident] = self.simulation.settle()
        end = self.clock.now() + HOUR
        self.simulation.store.exclusions.note("slurm", JOB, {name: Exclusion(incident.id, end) for name in self.nodes})
        self.simulation.close()
        self.restart()

    def drain(self, name: str, reason: str) -> None:
        self.nodes[name] = replace(self.nodes[name], state="drained", reason=reason)

    def restart(self) -> None:
        client: Any = NodesOf(self)
        self.drains = Drains(client, Store(self.engine, self.clock, self.point), self.clock, 3)

    def step(self, number: int) -> None:
        self.clock.elapsed += 61 if number != 7 else HOUR
        if number == 5:
            self.drain("taken", f"{self.nodes['taken'].reason} and a fan")
        self.drains.reconcile()

    def update_node(self, name: str, **fields: str) -> ControlResult:
        node = self.nodes[name]
        assert not node.reason or node.reason.startswith("trainwarden: "), "S10"
        assert not node.reason.endswith("fan"), "S10"
        self.updates.append((name, fields["State"]))
        drained = fields["State"] == "DRAIN"
        self.nodes[name] = replace(node, state="drained" if drained else "idle", reason=fields.get("Reason", ""))
        return ControlResult(accepted=True, refused=False, detail="ok")

    def check(self) -> None:
        assert self.updates.count(("bad1", "DRAIN")) == self.updates.count(("bad1", "RESUME")) == 1
        assert self.updates.count(("taken", "DRAIN")) == 1
        assert len(self.updates) == 3, self.updates
        assert self.nodes["bad1"].state == "idle"
        assert self.nodes["theirs"].reason == "ticket 5"
        assert self.nodes["taken"].state == "drained"

    def close(self) -> None:
        self.engine.dispose()


class CanaryKept(Dying):
    """Submits the canary's job where there is none, and again once it is gone; SLURM lists a job a minute later."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir()
        self.file = folder / "state.json"
        self.queue = test_canary_job.Queue()
        self.now, self.steps, self.listed_at = 1000.0, 40, 0.0
        self.restart()

    def restart(self) -> None:
        self.keeper = DyingKeeper(self, self.file, HOUR, lambda: self.now)

    def jobs(self) -> list[SlurmJob]:
        is_listed = self.now >= self.listed_at
        return [each for each in self.queue.listed if is_listed or each.state != "pending"]

    def submit(self) -> str | None:
        self.point("submit: before call")
        accepted, self.listed_at = self.queue.submit(), self.now + 60
        self.point("submit: after call")
        return accepted

    def cancel(self, job: SlurmJob) -> None:
        raise AssertionError(f"{job} is one too many")

    def step(self, number: int) -> None:
        self.now += canary_job_keeper.DOUBT_SECONDS / 4
        if number == 20:
            self.queue.listed = [test_canary_job.job(1, "cancelled")]
        self.keeper.look()

    def check(self) -> None:
        assert [each.state for each in self.queue.listed if each.state != "cancelled"] == ["pending"]
        assert self.queue.submitted == 2


class DyingKeeper(canary_job_keeper.Keeper):
    """Dies around the file that it keeps, too."""

    def __init__(self, path: CanaryKept, file: Path, resubmit_after: float, clock: Callable[[], float]) -> None:
        super().__init__(path, file, resubmit_after, clock)
        self._path = path

    def _keep(self, state: canary_job_keeper.KeeperState) -> None:
        changes = state != self._state
        if changes:
            self._path.point("keep: before")
        super()._keep(state)
        if changes:
            self._path.point("keep: after")


PATHS: dict[str, Callable[[Path], Acting]] = {
    "capture": CapturedBefore,
    "node exclusion": RestartedElsewhere,
    "canary healed": CanaryHealed,
    "canary kept": CanaryKept,
    "drain": Draining,
    "local driver": LocalRestart,
    "ray driver": RayRestart,
    "slurm driver": SlurmRequeue,
    "slurm driver, resubmission": SlurmResubmit,
    "sweep after a lost database": SweptAfterLoss,
    "sweep of a job that was submitted twice": SweptTwin,
    "undo of a late call": UndoneLate,
}


@pytest.mark.parametrize("path", PATHS)
@kills
@pytest.mark.timeout(3600)
def test_a_process_that_is_killed_at_any_point_leaves_a_path_that_is_finished_once(
    path: str, kills: int | None, tmp_path: Path
) -> None:
    clean = PATHS[path](tmp_path / "clean")
    clean.act()
    clean.check()
    clean.close()
    begun = PATHS[path](tmp_path / "begun")  # what it passes while it is set up is not what is tested
    begun.close()
    begin = len(begun.points)
    count = len(clean.points) - begin
    assert count > 5
    for number in (begin + each for each in spread(count, kills)):
        made = PATHS[path](tmp_path / "dying")
        made.crash_at = number
        made.act()
        assert made.crashes == 1, clean.points[number]
        made.check()
        made.close()
        shutil.rmtree(tmp_path / "dying")
