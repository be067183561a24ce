"""Sample one Ray cluster: its jobs, its nodes, and which of its GPUs are in use."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwarden.clients import ray, ray_usage
from trainwarden.clients.http import CREDENTIALS, MALFORMED
from trainwarden.clients.ray import FORBIDDEN, JOB_STATES, TOKEN, UNAUTHORIZED, UNDER_WAY, RayError
from trainwarden.redaction import label_text, plain, truncate
from trainwarden_exporter.collectors.ray import metrics
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainwarden.clients.http import PathAnswer
    from trainwarden.clients.ray import RayDashboard, RayJob, RayNodeGpus
    from trainwarden.clients.ray_usage import RayHolders, RayUsage
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

JOBS, USAGE, ACTORS, NODES, CLUSTER, GPUS = "jobs", "usage", "actors", "nodes", "cluster", "gpus"
PATHS = {
    JOBS: ray.JOBS_PATH,
    USAGE: ray_usage.STATUS_PATH,
    ACTORS: ray_usage.ACTORS_PATH,
    NODES: ray.NODES_PATH,
    CLUSTER: ray.VERSION_PATH,
    GPUS: ray.GPUS_PATH,
}
KEPT_SECONDS = 24 * 3600.0
STALE_SECONDS = 60.0
# Parts of GPUs are sums of floating point numbers.
ROUNDING = 1e-3
_STALE = f"unchanged for {STALE_SECONDS:.0f} s: what writes it on the head node has stopped"
_MESSAGES = {
    UNAUTHORIZED: "401: the dashboard requires a token, and got none: --collector.ray.token-file",
    FORBIDDEN: "403: the dashboard refuses the token that it got: --collector.ray.token-file",
}


class RayCollector:
    """Exports one cluster.

    Args:
        dashboard: the way to it.
        limit: jobs exported at most.
        node_gpus: whether to read how busy the GPUs of each node are, the one large answer.
        expect: gets the runs whose jobs are under way, and since when each is, Unix seconds; None if not needed.
        now: the clock, Unix seconds.
        monotonic: the clock for durations.
    """

    name = "ray"

    def __init__(
        self,
        dashboard: RayDashboard,
        *,
        limit: int,
        node_gpus: bool,
        expect: Callable[[dict[str, float]], None] | None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dashboard = dashboard
        self._limit = limit
        self._sources = [source for source in PATHS if node_gpus or source != GPUS]
        self._expect = expect or (lambda _: None)
        self._now = now
        self._monotonic = monotonic
        self._errors: Counter[str] = Counter(dict.fromkeys(self._sources, 0))
        self._logged: dict[str, str] = {}
        # Of each thing that carries a time of its own: that time, and when it was first seen, by our clock.
        self._written: dict[str, tuple[object, float]] = {}
        # Of the sample that is being taken; None where they could not be read.
        self._usage: RayUsage | None = None
        self._actors: RayHolders | None = None

    def collect(self) -> Iterable[Family]:
        """Return the families, without those whose source failed; raises RayError if the jobs cannot be read."""
        try:
            return self._collect()
        except BaseException:
            self._expect({})  # whether they are still under way is unknown
            raise

    def _collect(self) -> Iterable[Family]:
        paths = [PATHS[source] for source in self._sources]
        try:
            with calling(self._dashboard.call(paths)):
                answers = dict(zip(self._sources, self._dashboard.get(paths), strict=True))
        except RayError as error:
            raise RayError(error.reason, _explained(error)) from None
        families = Families()
        try:
            jobs = _labelled(ray.read_jobs(ray.read_document(answers[JOBS])))
        except (RayError, ValueError) as error:
            self._errors[JOBS] += 1
            reason = error.reason if isinstance(error, RayError) else MALFORMED
            raise RayError(reason, f"GET {PATHS[JOBS]}: {_explained(error)}") from None
        shown, dropped = shown_jobs(jobs, self._now(), self._limit)
        _add_jobs(families, jobs, dropped)
        for job in shown:
            _add_job(families, job)
        self._expect(expected_runs(jobs))
        self._usage, self._actors = None, None
        for source in self._sources[1:]:
            self._add_source(families, source, answers[source])
        self._add_held(families, [job for job in jobs if job.state == "running"], shown)
        for source, count in self._errors.items():
            families.add(metrics.TRAINWARDEN_RAY_ERRORS_TOTAL, count, source=source)
        return families.collected()

    def _add_source(self, families: Families, source: str, answer: PathAnswer) -> None:
        """Add the series of one source; if it cannot be read, count it, and log each new reason."""
        try:
            self._add_document(families, source, ray.read_document(answer))
        except (RayError, ValueError) as error:
            self._failed(source, PATHS[source], error)
        else:
            if self._logged.pop(source, None) is not None:
                log.info("collector ray: GET %s works again", PATHS[source])

    def _add_document(self, families: Families, source: str, document: object) -> None:
        """Add the series of one document; raises ValueError if it is another one, or has not changed for a minute."""
        if source == USAGE:
            usage = ray_usage.read_usage(document)
            if not self._is_fresh(USAGE, usage.time):
                raise ValueError(_STALE)
            self._usage = usage
            _add_usage(families, usage)
        elif source == ACTORS:
            self._actors = ray_usage.read_holders(document)
        elif source == NODES:
            for state, count in ray.read_nodes(document).items():
                families.add(metrics.RAY_CLUSTER_NODES, count, state=state)
        elif source == GPUS:
            nodes: dict[str, RayNodeGpus] = {}
            for each in ray.read_gpus(document):
                nodes.setdefault(_label(each.node), each)
            for name, node in nodes.items():
                if self._is_fresh(f"node {name}", node.reported):
                    _add_gpus(families, name, node)
            known = {f"node {name}" for name in nodes} | {USAGE}
            self._written = {name: seen for name, seen in self._written.items() if name in known}
        else:
            version = ray.read_version(document)
            labels = {"ray_version": label_text(version.version), "session": label_text(version.session)}
            families.add(metrics.RAY_CLUSTER_INFO, 1, **labels)

    def _add_held(self, families: Families, running: Sequence[RayJob], shown: Sequence[RayJob]) -> None:
        """Add how many GPUs each running job holds, without those of which that is unknown."""
        usage = self._usage
        if usage is None or usage.gpus.total <= 0:
            if usage is not None:
                families.add(metrics.RAY_CLUSTER_RUNNING_JOBS_WITHOUT_GPU, 0)
            return
        holders = [] if self._actors is None else [self._actors]
        held = _held(running, holders)
        if usage.gpus.used > sum(sum(each.gpus.values()) for each in holders) + ROUNDING and not all(held.values()):
            # Tasks hold the rest. There may be many, so they are not read where actors alone hold GPUs.
            tasks = self._tasks()
            holders += [tasks] if tasks else []
            held = _held(running, holders)
        attributed = sum(sum(each.gpus.values()) for each in holders)
        whole = usage.gpus.used <= attributed + ROUNDING and all(each.complete for each in holders)
        known = {job: gpus for job, gpus in held.items() if gpus or whole or not usage.gpus.used}
        for job in shown:
            if job.submission_id in known:
                families.add(
                    metrics.RAY_CLUSTER_JOB_GPUS,
                    known[job.submission_id],
                    submission_id=job.submission_id,
                    run_id=job.run_id,
                )
        if len(known) == len(running):
            without = sum(not gpus for gpus in known.values())
            families.add(metrics.RAY_CLUSTER_RUNNING_JOBS_WITHOUT_GPU, without)

    def _tasks(self) -> RayHolders | None:
        """Return the GPUs that tasks hold; None, and an error of `actors`, if they cannot be read."""
        path = ray_usage.TASKS_PATH
        try:
            with calling(self._dashboard.call([path])):
                (answer,) = self._dashboard.get([path])
            return ray_usage.read_holders(ray.read_document(answer))
        except (RayError, ValueError) as error:
            self._failed(ACTORS, path, error)
            return None

    def _failed(self, source: str, path: str, error: Exception) -> None:
        """Count an error of a source, and log each new reason."""
        message = _explained(error)
        self._errors[source] += 1
        if self._logged.get(source) != message:
            log.warning("collector ray: GET %s: %s; its series are left out", path, message)
            self._logged[source] = message

    def _is_fresh(self, name: str, written: object) -> bool:
        """Return whether it was written anew within the last minute, by our clock: those of the nodes may differ."""
        now = self._monotonic()
        seen = self._written.get(name)
        if seen is None or seen[0] != written:
            seen = self._written[name] = (written, now)
        return now - seen[1] <= STALE_SECONDS


def shown_jobs(jobs: Sequence[RayJob], now: float, limit: int) -> tuple[list[RayJob], int]:
    """Return the jobs under way and those that ended within a day, and how many were left out to keep to `limit`.

    Those under way come first, each kind the latest first.
    """
    young = [job for job in jobs if job.state in UNDER_WAY or now - (job.end or job.start or 0.0) <= KEPT_SECONDS]
    young.sort(key=lambda job: (job.state in UNDER_WAY, job.start or 0.0), reverse=True)
    return sorted(young[:limit], key=lambda job: job.submission_id), len(young[limit:])


def expected_runs(jobs: Sequence[RayJob]) -> dict[str, float]:
    """Return the runs whose jobs are under way, with the latest start of these jobs, Unix seconds."""
    since: dict[str, float] = {}
    for job in jobs:
        if job.run_id and job.state in UNDER_WAY and job.start is not None:
            since[job.run_id] = max(job.start, since.get(job.run_id, 0.0))
    return since


def _labelled(jobs: Sequence[RayJob]) -> list[RayJob]:
    """Return the jobs with ids that are fit for labels, each id once."""
    found: dict[str, RayJob] = {}
    for job in jobs:
        submission_id = _label(job.submission_id)
        if submission_id:
            found.setdefault(submission_id, replace(job, submission_id=submission_id, job_id=_label(job.job_id)))
    return list(found.values())


def _label(text: str) -> str:
    return truncate(plain(text), 128)


def _explained(error: Exception) -> str:
    """Return the message with the flag that it is about, and what kubectl wrote without secrets."""
    if not isinstance(error, RayError):
        return str(error)
    if error.reason in {TOKEN, CREDENTIALS}:
        return f"--collector.ray.{'token' if error.reason == TOKEN else 'ca'}-file {error}"
    details = f": {label_text(error.stderr)}" if error.stderr else ""
    return _MESSAGES.get(error.reason, f"{error}{details}")


def _add_jobs(families: Families, jobs: Sequence[RayJob], dropped: int) -> None:
    states = Counter(job.state for job in jobs)
    for state in JOB_STATES:
        families.add(metrics.RAY_CLUSTER_JOBS, states[state], state=state)
    families.add(metrics.RAY_CLUSTER_JOBS_DROPPED, dropped)


def _add_job(families: Families, job: RayJob) -> None:
    labels = {"submission_id": job.submission_id, "run_id": job.run_id}
    families.add(metrics.RAY_CLUSTER_JOB_INFO, 1, **labels, job_id=job.job_id, ray_error_type=job.error_type)
    if job.state:
        for state in JOB_STATES:
            families.add(metrics.RAY_CLUSTER_JOB_STATE, job.state == state, **labels, state=state)
    families.add(metrics.RAY_CLUSTER_JOB_START_TIMESTAMP_SECONDS, job.start, **labels)
    families.add(metrics.RAY_CLUSTER_JOB_END_TIMESTAMP_SECONDS, job.end, **labels)
    families.add(metrics.RAY_CLUSTER_JOB_EXIT_CODE, job.exit_code, **labels)


def _held(running: Sequence[RayJob], holders: Sequence[RayHolders]) -> dict[str, float]:
    """Return the GPUs that the actors and tasks of each running job hold, by submission id."""
    return {
        job.submission_id: sum(
            each.gpus.get(name, 0.0) for each in holders for name in {job.submission_id, job.job_id} if name
        )
        for job in running
    }


def _add_usage(families: Families, usage: RayUsage) -> None:
    """Add what the cluster has and what of it is held."""
    families.add(metrics.RAY_CLUSTER_GPUS, usage.gpus.total)
    families.add(metrics.RAY_CLUSTER_GPUS_ALLOCATED, usage.gpus.used)
    families.add(metrics.RAY_CLUSTER_CPUS, usage.cpus.total)
    families.add(metrics.RAY_CLUSTER_CPUS_ALLOCATED, usage.cpus.used)
    families.add(metrics.RAY_CLUSTER_GPUS_RESERVED, usage.gpus.reserved)
    families.add(metrics.RAY_CLUSTER_GPUS_WANTED, usage.gpus_wanted)


def _add_gpus(families: Families, name: str, node: RayNodeGpus) -> None:
    for gpu, busy in node.busy.items():
        families.add(metrics.RAY_CLUSTER_NODE_GPU_UTILIZATION_RATIO, busy, node=name, gpu=gpu)
