"""Whether each job could be brought back now, and if not, why: read before a failure, not after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden_remediator.drivers.driver import Driver, JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.choice import Policies
from trainwarden_remediator.examine.objections import successor
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun, RunSource

_UNDER_WAY = frozenset((JobState.RUNNING, JobState.ENDING, JobState.WAITING, JobState.HELD, JobState.OTHER))


@dataclass(frozen=True)
class Prospect:
    """Whether a job could be brought back, if it failed now: it could, where there are no obstacles."""

    scheduler: str
    job: ScheduledJob
    obstacles: tuple[str, ...]

    @property
    def new_job(self) -> bool:
        """Whether it would come back under another id."""
        return self.job.shape is not None and self.job.shape.gives_new_job

    def as_json(self) -> Mapping[str, object]:
        """Return it as `doctor --format json` shows it."""
        return {
            "scheduler": self.scheduler,
            "job_id": self.job.job_id,
            "run_id": self.job.run_id,
            "state": self.job.scheduler_state,
            "recoverable": not self.obstacles,
            "new_job": self.new_job,
            "obstacles": list(self.obstacles),
        }


# Returns why a restart of an attempt would stop for a person, given what its policy takes for a complete checkpoint.
Stops = Callable[[ReportedRun, str | None], str | None]
# Returns why a person lets a run not be restarted now.
Frozen = Callable[[str], str | None]


def prospects(
    driver: Driver,
    jobs: Sequence[ScheduledJob],
    runs: RunSource,
    policies: Policies,
    stops: Stops = lambda _run, _trust: None,
    frozen: Frozen = lambda _run_id: None,
) -> Sequence[Prospect]:
    """Return the prospects of those jobs of a scheduler that are not over."""
    under_way = [job for job in jobs if job.state in _UNDER_WAY]
    records = runs.runs({job.run_id for job in under_way if job.run_id})
    found = []
    for job in under_way:
        of_run = _of_run(job, records[job.run_id], policies, stops) if job.run_id else ()
        switched = [why] if job.run_id and (why := frozen(job.run_id)) else []
        obstacles = (*driver.obstacles(job), *_of_chain(job, jobs), *of_run, *switched)
        found.append(Prospect(driver.name, job, tuple(dict.fromkeys(obstacles))))
    return found


class Outlook:
    """The prospects of all jobs when they were last looked at, as a metric; for any thread."""

    def __init__(
        self,
        runs: RunSource,
        policies: Policies,
        stops: Stops = lambda _run, _trust: None,
        frozen: Frozen = lambda _run_id: None,
    ) -> None:
        self._frozen = frozen
        self._runs = runs
        self._policies = policies
        self._stops = stops
        self._prospects: dict[str, Sequence[Prospect]] = {}

    def look(self, driver: Driver, jobs: Sequence[ScheduledJob] | Unknown) -> None:
        """Judge the marked jobs of a scheduler; forget them where it gives no answer."""
        found: Sequence[Prospect] = ()
        if not isinstance(jobs, Unknown):
            found = prospects(driver, jobs, self._runs, self._policies, self._stops, self._frozen)
        self._prospects = {**self._prospects, driver.name: found}

    def families(self) -> Iterator[Metric]:
        """Return the metric: 1 without a reason, else 0 once for each reason."""
        family = GaugeMetricFamily(
            "trainwarden_remediator_recoverable",
            "Whether a job could be brought back now, if it failed; 0 for each reason why not.",
            labels=["run_id", "job_id", "scheduler", "reason"],
        )
        for each in (prospect for found in self._prospects.values() for prospect in found):
            for reason in each.obstacles or ("",):
                labels = [each.job.run_id or "", each.job.job_id, each.scheduler, clean(reason)]
                family.add_metric(labels, 0.0 if each.obstacles else 1.0)
        yield family


def _of_chain(job: ScheduledJob, jobs: Sequence[ScheduledJob]) -> Sequence[str]:
    verdict = successor(job, jobs) if job.run_id else None
    return [] if verdict is None else [verdict.reason]


def _of_run(job: ScheduledJob, run: Evidence, policies: Policies, stops: Stops) -> Sequence[str]:
    """Return what the policy of the run and its record stand in the way with."""
    choice = policies.of(job.run_id or "", run.policy if isinstance(run, ReportedRun) else None)
    found = [] if choice.policy.restarts else [f"policy {choice.policy.name} restarts nothing"]
    if not found and (observed := policies.observed(job.run_id or "", choice)) is not None:
        found.append(observed)
    if job.state is not JobState.RUNNING:
        return found
    if isinstance(run, Unknown):
        return [*found, f"its record is unknown: {run.reason}"]
    if run is None:
        return [*found, "Prometheus has no record of the run: no alert can be about it"]
    if not run.attempt_key.endswith(f":{job.job_id}:{job.generation}"):
        found.append(f"its record is about another start: {run.attempt_key}")
    if run.checkpoint_step is None:
        found.append("the run has reported no checkpoint: a restart begins anew")
    elif why := stops(run, choice.policy.checkpoint_trust):
        found.append(why)
    return found
