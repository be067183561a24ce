"""Driver `ray`: jobs of Ray's job API. Each start is a submission of its own: stop, await the end, submit.

The id of the next submission is made of the run's first id, the attempt and the incident, so that a call which is
repeated after a lost answer or a crash finds the first one. Ray cannot hold a job, and never starts one id twice.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden.clients.kubernetes import KubernetesError, RayJobResource
from trainwarden.clients.ray import LABELS_VERSION, RayError, RayJob, is_older
from trainwarden.clients.ray_jobs import (
    CallAnswer,
    PackageKeeper,
    RayAnswer,
    RayJobs,
    RayReserved,
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
from trainwarden_remediator.drivers.ray_submission import (
    INCIDENT,
    RUN_ID,
    environment_objection,
    next_submission,
    submission_id,
)
from trainwarden_remediator.drivers.ray_templates import RayTemplate, RayTemplates, equal, shown
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
# What Ray's dashboard shows a browser instead of a value.
_MASKED = "<redacted>"
_KEPT_AFTER_END_SECONDS = 3600.0
# Actors of a job end some seconds after its entrypoint.
_ENDING_SECONDS = 600.0
_RESOURCES_SECONDS = 60.0


@dataclass
class _Memory:
    """What all snapshots share: it never changes, or may be some minutes old."""

    packages: PackageKeeper
    reserved: dict[str, RayReserved] = field(default_factory=dict)
    resources: tuple[float, Mapping[str, RayJobResource] | Unknown] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


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
        self._list_resources = resources
        self._clock = clock
        self._memory = _Memory(PackageKeeper(jobs))
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
            objections = self._objections(found)
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
            objections = self._objections(submitted) if submitted is not None else []
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
            if problem := self._problem(found) or self._missing(found):
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
            if problem := self._problem(found) or self._missing(found):
                return CallResult(CallOutcome.REFUSED, f"nothing was called: {problem}")
            template = self._template(found.job) or RayTemplate()
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

    def _objections(self, found: SubmittedJob) -> list[str] | Unknown:
        """Return all that speaks against a restart, of one that may be needed; unknown where something may."""
        if found.job.state not in ("running", "failed"):
            return []
        of_kubernetes = self._of_kubernetes(found.job)
        if isinstance(of_kubernetes, Unknown):
            return of_kubernetes
        has_failed = found.job.state == "failed"
        objections = (
            of_kubernetes,
            self._of_train(found.job),
            environment_objection(found) if has_failed else None,
            self._problem(found),
            self._missing(found) if has_failed else None,
        )
        return [each for each in objections if each]

    def _of_kubernetes(self, job: RayJob) -> str | Unknown | None:
        """Return why a job that KubeRay has submitted is left: it would submit it again as well, or end the cluster."""
        if self._list_resources is None:
            return None
        with self._memory.lock:
            now = time.monotonic()
            if self._memory.resources is None or now - self._memory.resources[0] > _RESOURCES_SECONDS:
                try:
                    self._memory.resources = (now, self._list_resources())
                except KubernetesError as error:
                    self._memory.resources = (now, Unknown(clean(str(error), 300)))
            listed = self._memory.resources[1]
        if isinstance(listed, Unknown):
            return Unknown(f"whether a RayJob restarts job {job.submission_id} itself is unknown: {listed.reason}")
        owner = listed.get(job.submission_id)
        if owner is None:
            return None
        return (
            f"job {job.submission_id} is of RayJob {clean(owner.name, 80)}, which restarts it itself "
            f"(backoffLimit {owner.backoff_limit}) and takes its end for that of the RayJob: submit it to a RayCluster"
        )

    def _of_train(self, job: RayJob) -> str | None:
        """Return why a job that has failed is left: Ray Train has restarted its workers as often as it was to."""
        if job.state != "failed":
            return None
        train = self._api.train(job)
        if train is None:
            return None
        try:
            template = self._template(job)
        except ConfigError as error:
            return clean(str(error), 400)
        retries = train.max_failures
        if retries is None and template is not None:
            retries = template.ray_train_max_failures
        if retries is None:
            return (
                f"Ray Train runs job {job.submission_id}, how often it restarts its workers is unknown: set "
                "RAY_TRAIN_ENABLE_STATE_TRACKING=1 in its environment, or note it (trainwarden-remediator ray register "
                f"{job.submission_id} --train-max-failures N)"
            )
        if retries == 0:
            return None
        often = "without end" if retries < 0 else f"{retries} times"
        return (
            f"Ray Train restarts the workers of job {job.submission_id} itself, {often} (max_failures), and it has "
            "failed: restarts upon restarts would multiply; set max_failures=0"
        )

    def _problem(self, found: SubmittedJob) -> str | None:
        """Return why the job would not come back as it was."""
        job, variables = found.job, found.submission.runtime_env.get("env_vars")
        if isinstance(variables, dict) and _MASKED in variables.values():
            return f"job {job.submission_id}: the dashboard masks its environment: the job would come back without"
        if job.submission_id not in self._memory.reserved:
            reserved = self._api.reserved(job.submission_id)
            if reserved is not None:
                self._memory.reserved[job.submission_id] = reserved
        reserved = self._memory.reserved.get(job.submission_id)
        try:
            template = self._template(job)
        except ConfigError as error:
            return clean(str(error), 400)
        if template is not None and template.reserved.label_selector and is_older(self._version, LABELS_VERSION):
            return (
                f"{self._templates.path(job.run_id)} has an entrypoint_label_selector, which Ray "
                f"{clean(self._version, 40)} does not take: remove it"
            )
        again = f"register it (trainwarden-remediator ray register {job.submission_id})"
        without = "which Ray's job API does not return: it would come back without"
        if template is None and reserved is None:
            return f"whether the entrypoint of job {job.submission_id} reserves GPUs is not known, {without}: {again}"
        if template is None:
            amounts = shown(reserved)
            return (
                f"the entrypoint of job {job.submission_id} reserves {amounts}, {without}: {again}" if amounts else None
            )
        if reserved is not None and not equal(template.reserved, reserved):
            return (
                f"the entrypoint of job {job.submission_id} reserves {shown(reserved) or 'nothing'}, and by "
                f"{self._templates.path(job.run_id)} {shown(template.reserved) or 'nothing'}: {again}"
            )
        return None

    def _missing(self, found: SubmittedJob) -> str | None:
        """Return which package is gone that has no copy; lets Ray keep the others."""
        try:
            template = self._template(found.job)
        except ConfigError as error:
            return clean(str(error), 400)
        for name in found.submission.packages():
            if template is not None and template.copy_of(name) is not None:
                continue
            if not self._api.keep_package(name):
                return (
                    f"Ray has deleted the package gcs://{name} of job {found.job.submission_id} after its end, and "
                    "there is no copy: submit it again by hand, and register it with --working-dir"
                )
        return None

    def _template(self, job: RayJob) -> RayTemplate | None:
        return self._templates.of(job.run_id)

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
                self._memory.packages.keep(each.submission.packages())
            except RayError as error:
                log.warning("packages of job %s could not be kept: %s", each.job.submission_id, error)
                return


def _as_result(answer: RayAnswer) -> CallResult:
    outcomes = {CallAnswer.ACCEPTED: CallOutcome.ACCEPTED, CallAnswer.REFUSED: CallOutcome.REFUSED}
    return CallResult(outcomes.get(answer.answer, CallOutcome.UNCLEAR), clean(answer.detail, 800))


def _no_answer(error: RayError) -> str:
    return f"Ray's dashboard gives no answer: {clean(str(error), 300)}"
