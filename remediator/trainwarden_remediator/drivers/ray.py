"""Driver `ray`: jobs of Ray's job API. Each start is a submission of its own: stop, await the end, submit.

The id of the next submission is made of the run's first id, the attempt and the incident, so that a call which is
repeated after a lost answer or a crash finds the first one. Ray cannot hold a job, and never starts one id twice.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from trainwarden.clients.kubernetes import RayJobResource
from trainwarden.clients.ray import RayError
from trainwarden.clients.ray_jobs import (
    CallAnswer,
    PackageKeeper,
    RayAnswer,
    RayJobs,
    RaySubmission,
    SubmittedJob,
)
from trainwarden.clients.ray_package import package_name
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    CallResult,
    JobState,
    Reading,
    RestartTarget,
    ScheduledJob,
    Shape,
)
from trainwarden_remediator.drivers.ray_objections import RayObjections
from trainwarden_remediator.drivers.ray_submission import (
    INCIDENT,
    RUN_ID,
    next_submission,
    submission_id,
)
from trainwarden_remediator.drivers.ray_templates import RayTemplate, RayTemplates
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.incidents.incident import clean

log = logging.getLogger(__name__)

_STATES = {
    "pending": JobState.WAITING,
    "running": JobState.RUNNING,
    "succeeded": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "stopped": JobState.CANCELLED,
}
_ENDED = frozenset(("failed", "stopped"))
_KEPT_AFTER_END_SECONDS = 3600.0
# Actors of a job end some seconds after its entrypoint.
_ENDING_SECONDS = 600.0


class RayDriver:
    """The jobs of one Ray cluster that carry the run's id in their metadata, or in their environment.

    Args:
        jobs: of the cluster.
        templates: what Ray does not return of them.
        resources: lists the RayJobs of KubeRay, by the id of their submission; None where there is no Kubernetes.
        clock: wall clock, Unix seconds.
    """

    name = "ray"
    shape = Shape.SUBMIT

    def __init__(
        self,
        jobs: RayJobs,
        templates: RayTemplates,
        resources: Callable[[], Mapping[str, RayJobResource]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = jobs
        self._templates = templates
        self._objections = RayObjections(jobs, templates, resources)
        self._packages = PackageKeeper(jobs)
        self._clock = clock
        self._named: tuple[str, ...] = ()
        self._found: dict[str, SubmittedJob | None] = {}
        self._all: dict[str, SubmittedJob] | None = None
        self._session = self._version = ""
        self._readings: dict[str, Reading] = {}

    def snapshot(self, job_ids: Collection[str] = ()) -> RayDriver:
        """Return a driver that has read nothing yet, and reads the named jobs together when the first is asked for."""
        fresh = copy.copy(self)
        fresh._named = tuple(sorted(job_ids))  # noqa: SLF001  # of the same class
        fresh._found, fresh._all, fresh._readings = {}, None, {}  # noqa: SLF001  # as above
        return fresh

    def job(self, job_id: str) -> Reading:
        """Return one job as of this snapshot."""
        if job_id not in self._readings:
            self._readings[job_id] = self._read(job_id)
        return self._readings[job_id]

    def _read(self, job_id: str) -> Reading:
        try:
            found = self._find(job_id)
            if found is None:
                return Absent(lost=self._forgotten(job_id))
            job = self._as_job(found)
            if job.state is JobState.WAITING or job.run_id is None:
                return job
            ends = found.job.state in _ENDED and self._clock() - (found.job.end or 0.0) < _ENDING_SECONDS
            if ends and self._api.living_actors(found.job):
                return replace(job, state=JobState.ENDING)
            objections = self._objections.of(found, self._version)
            if isinstance(objections, Unknown):
                return objections
            return replace(job, refusal=job.refusal or next(iter(objections), None))
        except RayError as error:
            return Unknown(_no_answer(error))

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return every job that is marked with a run; lets Ray keep the packages of those that may be restarted."""
        try:
            found = [each for each in self._read_all().values() if each.job.run_id]
        except RayError as error:
            return Unknown(_no_answer(error))
        self._keep_packages(found)
        return [self._as_job(each) for each in found]

    def boot(self) -> str | Unknown:
        """Return the session of the head: it begins anew with each start of it, and forgets all jobs."""
        try:
            return clean(self._api.version().session, 80)
        except RayError as error:
            return Unknown(_no_answer(error))

    def version(self) -> str | Unknown:
        """Return which Ray it is."""
        try:
            return clean(self._api.version().version, 40)
        except RayError as error:
            return Unknown(_no_answer(error))

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return why the job could not be ended and submitted again."""
        found = [] if job.refusal is None else [job.refusal]
        if job.run_id is None:
            return [*found, f"job {job.job_id} has no {RUN_ID} in its metadata"]
        try:
            submitted = self._find(job.job_id)
            objections = self._objections.of(submitted, self._version) if submitted is not None else []
            found += [objections.reason] if isinstance(objections, Unknown) else objections
        except RayError as error:
            found.append(_no_answer(error))
        return list(dict.fromkeys(found))

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob] | Unknown:
        """Return the job that was submitted under the id of the target; unknown where that is somebody else's."""
        job = self.job(submission_id(target))
        if isinstance(job, Absent):
            return ()
        if isinstance(job, Unknown):
            return job
        if job.submission != target.incident or job.run_id != target.run_id:
            return Unknown(f"job {job.job_id} has the id of the next start, and is not of this incident")
        return (job,)

    def prepare(self, target: RestartTarget) -> CallResult:
        """Stop the job, once what its next start needs is certain to be there."""
        try:
            found = self._find(target.job_id)
            if found is None or found.job.run_id != target.run_id or found.job.state != "running":
                state = "not there" if found is None else found.job.state or "in an unknown state"
                return CallResult(CallOutcome.UNCLEAR, f"nothing was called: the job is {state}")
            if problem := self._objections.to_submission(found, self._version):
                return CallResult(CallOutcome.REFUSED, f"nothing was called: {problem}")
            return _as_result(self._api.stop(target.job_id))
        except RayError as error:
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {_no_answer(error)}")

    def exclude(self, target: RestartTarget) -> CallResult:
        """Refuse: Ray places a job where its resources are."""
        return CallResult(CallOutcome.REFUSED, f"job {target.job_id}: Ray excludes no nodes")

    def commit(self, target: RestartTarget) -> CallResult:
        """Submit the job again under the id of the target."""
        try:
            found = self._find(target.job_id)
            if found is None:
                return CallResult(CallOutcome.REFUSED, f"nothing was called: {self._forgotten(target.job_id)}")
            if found.job.run_id != target.run_id or found.job.state not in _ENDED:
                return CallResult(CallOutcome.UNCLEAR, f"nothing was called: the job is {found.job.state or 'unknown'}")
            if problem := self._objections.to_submission(found, self._version):
                return CallResult(CallOutcome.REFUSED, f"nothing was called: {problem}")
            template = self._templates.of(found.job.run_id) or RayTemplate()
            packages, answer = self._upload(found.submission, template)
            if answer is not None:
                return answer
            made = _as_result(self._api.submit(next_submission(found, target, packages), template.reserved))
            if not target.exclude_nodes:
                return made
            nodes = ", ".join(target.exclude_nodes)
            return replace(made, detail=clean(f"{made.detail}; Ray excludes no nodes: it may start on {nodes}", 800))
        except RayError as error:
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {_no_answer(error)}")
        except ConfigError as error:
            return CallResult(CallOutcome.REFUSED, f"nothing was called: {error}")

    def discard(self, target: RestartTarget) -> CallResult:
        """Refuse: nothing that was submitted is held."""
        return CallResult(CallOutcome.REFUSED, f"job {target.successor}: Ray holds no jobs")

    def _find(self, job_id: str) -> SubmittedJob | None:
        if self._all is not None:
            return self._all.get(job_id)
        if job_id not in self._found:
            wanted = dict.fromkeys((job_id, *(each for each in self._named if each not in self._found)))
            version, found = self._api.some(list(wanted))
            self._session, self._version = version.session, version.version
            self._found.update(found)
        return self._found[job_id]

    def _read_all(self) -> dict[str, SubmittedJob]:
        if self._all is None:
            version, self._all = self._api.all()
            self._session, self._version = version.session, version.version
        return self._all

    def _forgotten(self, job_id: str) -> str:
        return (
            f"Ray has no job {job_id} (any more): a head forgets its jobs when it is started again, and its present "
            f"session is {clean(self._session, 80)}. It cannot be submitted again from here: submit it by hand"
        )

    def _as_job(self, found: SubmittedJob) -> ScheduledJob:
        job, metadata = found.job, found.submission.metadata
        refusal = None
        if job.submission_id == job.job_id:
            refusal = f"job {job.job_id} was not submitted: Ray ends no program that only calls ray.init()"
        return ScheduledJob(
            job_id=job.submission_id,
            run_id=job.run_id or None,
            generation=0,
            state=_STATES.get(job.state, JobState.OTHER),
            scheduler_state=clean(job.state.upper() + (f" ({job.error_type})" if job.error_type else ""), 80),
            refusal=refusal,
            started=job.start,
            waits_because="PENDING, for resources or its runtime environment" if job.state == "pending" else "",
            submission=metadata.get(INCIDENT) or None,
        )

    def _upload(self, job: RaySubmission, template: RayTemplate) -> tuple[dict[str, str], CallResult | None]:
        """Give Ray the copies of packages, under names of their own: to the others Ray may hold the deletion against.

        Return which name stands for which, and a result where that failed.
        """
        names: dict[str, str] = {}
        for name in job.packages():
            file = template.copy_of(name)
            if file is None:
                continue
            content = self._templates.package(file)
            names[name] = package_name(content)
            self._api.keep_package(names[name])
            answer = self._api.upload_package(names[name], content)
            if answer.answer is not CallAnswer.ACCEPTED:
                return names, CallResult(
                    _as_result(answer).outcome, clean(f"nothing was submitted: {answer.detail}", 800)
                )
        return names, None

    def _keep_packages(self, found: Sequence[SubmittedJob]) -> None:
        """Let Ray keep the packages of jobs that may be restarted: it deletes them with the end of the job."""
        now = self._clock()
        for each in found:
            # One that was stopped may have been so by a restart that is under way.
            is_over = each.job.state == "succeeded" or (each.job.end and now - each.job.end > _KEPT_AFTER_END_SECONDS)
            if is_over:
                continue
            try:
                self._packages.keep(each.submission.packages())
            except RayError as error:
                log.warning("packages of job %s could not be kept: %s", each.job.submission_id, error)
                return


def _as_result(answer: RayAnswer) -> CallResult:
    outcomes = {CallAnswer.ACCEPTED: CallOutcome.ACCEPTED, CallAnswer.REFUSED: CallOutcome.REFUSED}
    return CallResult(outcomes.get(answer.answer, CallOutcome.UNCLEAR), clean(answer.detail, 800))


def _no_answer(error: RayError) -> str:
    return f"Ray's dashboard gives no answer: {clean(str(error), 300)}"
