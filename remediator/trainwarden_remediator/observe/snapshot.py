"""What all steps of one round read: each source once, whatever the number of incidents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainwarden_remediator.drivers.driver import CallResult, Driver, Reading, RestartTarget, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import parse_key
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.nodes import SuspectNodes
from trainwarden_remediator.observe.world import Firing, World


@dataclass(frozen=True)
class Subject:
    """A run, and the job that it is known to have, which a round is going to need."""

    run_id: str
    scheduler: str | None
    job_id: str | None


class Snapshot:
    """The readings of one round, made when they are first needed. Not for several threads.

    `world` has the same ports as the world that is read, and answers from the snapshot.

    Args:
        world: to read.
        reuse: seconds for which a reading of a scheduler serves where no fresh one is asked for.
    """

    def __init__(self, world: World, reuse: float) -> None:
        self._real = world
        self._reuse = reuse
        self._firing: Firing | None = None
        self.whole = False
        self._runs: dict[str, Evidence] = {}
        self._restarts: Mapping[str, float] | Unknown | None = None
        self._subjects: frozenset[Subject] = frozenset()
        drivers = {name: _SnapshotDriver(driver, self) for name, driver in world.drivers.items()}
        self._drivers = drivers
        self._suspects: dict[str, SuspectNodes | Unknown] = {}
        self.world = replace(world, alerts=self, runs=self, drivers=drivers, nodes=self)

    def begin(
        self, subjects: Iterable[Subject], *, serves: float | None = None, evidence: float = 0.0, whole: bool = False
    ) -> None:
        """Discard what was read; that of the schedulers only where it is of no more use.

        Args:
            subjects: what the round is going to need.
            serves: seconds since its end for which a reading serves; `reuse` of them where nothing depends on it.
            evidence: Unix time; a reading that was begun before does not serve.
            whole: the round is going to need the list of all jobs.
        """
        self.whole = whole
        self._runs, self._restarts, self._suspects = {}, None, {}
        self._subjects = frozenset(subjects)
        for driver in self._drivers.values():
            driver.begin(self._reuse if serves is None else serves, evidence)

    def reading(self, scheduler: str | None) -> int | None:
        """Return the number of the reading of a scheduler that serves; None where a new one is going to be made."""
        driver = self._drivers.get(scheduler or "")
        return None if driver is None else driver.reading

    def poll(self) -> Firing:
        """Read Alertmanager; the answer serves until the next poll."""
        self._firing = self._real.alerts.firing()
        return self._firing

    def firing(self) -> Firing:
        """Return the alerts that fire."""
        return self.poll() if self._firing is None else self._firing

    def runs(self, run_ids: Collection[str]) -> Mapping[str, Evidence]:
        """Return these runs, read together with those of all subjects."""
        if not self._runs.keys() >= set(run_ids):
            wanted = {each.run_id for each in self._subjects} | set(run_ids)
            self._runs.update(self._real.runs.runs(wanted - self._runs.keys()))
        return {run_id: self._runs[run_id] for run_id in run_ids}

    def restarts(self, database: str) -> Mapping[str, float] | Unknown:
        """Return the restarts of all runs on record by Prometheus."""
        if self._restarts is None:
            self._restarts = self._real.runs.restarts(database)
        return self._restarts

    def of_run(self, run_id: str) -> SuspectNodes | Unknown:
        """Return the suspect nodes of a run."""
        if run_id not in self._suspects:
            self._suspects[run_id] = self._real.nodes.of_run(run_id)
        return self._suspects[run_id]

    def of_jobs(self, job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        """Return the nodes that each job had last."""
        return self._real.nodes.of_jobs(job_ids)

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._real.clock.monotonic()

    def job_ids(self, scheduler: str) -> set[str]:
        """Return the jobs of all subjects in a scheduler, by what is known of them and of their runs."""
        found = {each.job_id for each in self._subjects if each.scheduler == scheduler and each.job_id}
        for run in self._runs.values():
            key = parse_key(run.attempt_key) if isinstance(run, ReportedRun) else None
            if key is not None and key.scheduler == scheduler:
                found.add(key.job_id)
        return found


class _SnapshotDriver:
    """Reads the jobs of a round at once. Calls are made upon fresh readings of the real driver instead."""

    def __init__(self, driver: Driver, shared: Snapshot) -> None:
        self._driver = driver
        self._shared = shared
        self._present: Driver | None = None
        self._begun = self._ended = 0.0  # Unix time and monotonic seconds
        self._number = 0
        self._asked: set[str] = set()
        self._is_whole = False
        self.name = driver.name
        self.shape = driver.shape

    @property
    def reading(self) -> int | None:
        """The number of the reading that serves; None where there is none."""
        return None if self._present is None else self._number

    def begin(self, serves: float, evidence: float) -> None:
        """Discard what was read, unless it serves: it is young enough, and has what the round needs."""
        is_young = self._shared.now() - self._ended < serves and self._begun >= evidence
        suffices = self._is_whole or not (self._shared.whole or self._shared.job_ids(self.name) - self._asked)
        if not (is_young and suffices):
            self._present = None

    def snapshot(self, job_ids: Collection[str] = ()) -> Driver:
        """Return the real driver, reading anew."""
        return self._driver.snapshot(job_ids)

    def job(self, job_id: str) -> Reading:
        """Return one job."""
        is_first = self._present is None
        found = self._read().job(job_id)
        if is_first:
            self._ended = self._shared.now()  # the first has read the others, too
        return found

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return every job that is marked with a run."""
        return self._read().jobs()

    def boot(self) -> str | Unknown:
        """Return when the scheduler's controller was started."""
        return self._driver.boot()

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return what would keep this remediator from ending and starting a job."""
        return self._driver.obstacles(job)

    def _read(self) -> Driver:
        if self._present is None:
            self._begun, self._number = self._shared.world.clock.now(), self._number + 1
            self._asked, self._is_whole = self._shared.job_ids(self.name), self._shared.whole
            self._present = self._driver.snapshot(self._asked)
            if self._is_whole:
                self._present.jobs()  # needed anyway: the list of all has the others, too
            self._ended = self._shared.now()
        return self._present

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob] | Unknown:
        """Return the jobs that carry the token of the target."""
        return self._read().submitted(target)

    def prepare(self, target: RestartTarget) -> CallResult:
        """Call the real driver upon a fresh reading."""
        return self.snapshot((target.job_id,)).prepare(target)

    def exclude(self, target: RestartTarget) -> CallResult:
        """Call the real driver upon a fresh reading."""
        return self.snapshot((target.job_id,)).exclude(target)

    def commit(self, target: RestartTarget) -> CallResult:
        """Call the real driver upon a fresh reading."""
        return self.snapshot((target.job_id,)).commit(target)

    def discard(self, target: RestartTarget) -> CallResult:
        """Call the real driver upon a fresh reading."""
        return self.snapshot((target.successor,)).discard(target)
