"""The collector of a Ray cluster: its jobs, its nodes, and which of its GPUs are in use."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.ray import metrics
from trainwarden_exporter.collectors.ray.jobs import expected_runs, read_jobs, shown
from trainwarden_exporter.collectors.ray.reach import FORBIDDEN, MALFORMED, STATUS, UNAUTHORIZED, Answer, Unreachable
from trainwarden_exporter.collectors.ray.resources import read_gpus, read_nodes, read_usage
from trainwarden_exporter.collectors.ray.series import add_cluster, add_gpus, add_job, add_jobs, add_nodes, add_usage
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.redaction import label_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.collectors.ray.jobs import Job
    from trainwarden_exporter.collectors.ray.reach import Reach
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

JOBS, USAGE, NODES, GPUS, CLUSTER = "jobs", "usage", "nodes", "gpus", "cluster"
PATHS = {
    JOBS: "/api/jobs/",
    USAGE: "/api/cluster_status?format=1",
    NODES: "/api/v0/nodes?limit=10000",
    CLUSTER: "/api/version",
    GPUS: "/nodes?view=summary",
}
STALE = "stale"
STALE_SECONDS = 60.0
_SAID = {
    UNAUTHORIZED: "401: the dashboard asks for a token, and was given none: --collector.ray.token-file",
    FORBIDDEN: "403: the dashboard refuses the token that it was given: --collector.ray.token-file",
    STALE: f"unchanged for {STALE_SECONDS:.0f} s: what writes it on the head node has stopped",
}


class RayCollector:
    """Exports one cluster.

    Args:
        reach: the way to its dashboard.
        limit: jobs exported at most.
        node_gpus: whether to ask how busy the GPUs of each node are, the one large answer.
        expect: told of the runs whose jobs are under way, and since when each is; None where nobody asks.
        now: the clock, Unix seconds.
        monotonic: the clock for durations.
    """

    name = "ray"

    def __init__(
        self,
        reach: Reach,
        *,
        limit: int,
        node_gpus: bool,
        expect: Callable[[dict[str, float]], None] | None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reach = reach
        self._limit = limit
        self._sources = [source for source in PATHS if node_gpus or source != GPUS]
        self._expect = expect or (lambda _: None)
        self._now = now
        self._monotonic = monotonic
        self._errors: Counter[str] = Counter(dict.fromkeys(self._sources, 0))
        self._logged: dict[str, str] = {}
        self._written: dict[str, tuple[object, float]] = {}

    def collect(self) -> Iterable[Family]:
        """Return the families; raises `Unreachable` if the jobs cannot be read. What else cannot be is left out."""
        try:
            return self._collect()
        except BaseException:
            self._expect({})  # whether they are still under way is not known
            raise

    def _collect(self) -> Iterable[Family]:
        answers = dict(zip(self._sources, self._reach.get([PATHS[each] for each in self._sources]), strict=True))
        families = Families()
        try:
            jobs = read_jobs(_document(answers[JOBS]))
        except (Unreachable, ValueError) as error:
            self._errors[JOBS] += 1
            raise Unreachable(f"GET {PATHS[JOBS]}: {error}") from None
        self._add_jobs(families, jobs)
        running = sum(job.state == "running" for job in jobs)
        for source in self._sources[1:]:
            self._add(families, source, answers[source], running)
        for source, count in self._errors.items():
            families.add(metrics.TRAINWARDEN_RAY_ERRORS_TOTAL, count, source=source)
        return families.collected()

    def _add_jobs(self, families: Families, jobs: list[Job]) -> None:
        some, dropped = shown(jobs, self._now(), self._limit)
        add_jobs(families, jobs, dropped)
        for job in some:
            add_job(families, job)
        self._expect(expected_runs(jobs))

    def _add(self, families: Families, source: str, answer: Answer, running: int) -> None:
        """Add what one source says, or else count and log why it is left out."""
        try:
            self._add_document(families, source, _document(answer), running)
        except (Unreachable, ValueError) as error:
            self._failed(source, str(error))
        else:
            self._works(source)

    def _add_document(self, families: Families, source: str, document: object, running: int) -> None:
        """Add what one source says; raises `ValueError` if it is another document, or says what it said long ago."""
        if source == USAGE:
            usage = read_usage(document)
            if not self._is_fresh(USAGE, usage.time):
                raise ValueError(_SAID[STALE])
            add_usage(families, usage, running)
        elif source == NODES:
            add_nodes(families, read_nodes(document))
        elif source == GPUS:
            nodes = read_gpus(document)
            add_gpus(families, [node for node in nodes if self._is_fresh(f"node {node.node}", node.reported)])
            self._forget({f"node {node.node}" for node in nodes} | {USAGE})
        else:
            version = document if isinstance(document, dict) else {}
            add_cluster(families, *(label_text(str(version.get(key, ""))) for key in ("ray_version", "session_name")))

    def _is_fresh(self, what: str, written: object) -> bool:
        """Tell whether it was written anew within the last minute: on our clock, for those of the nodes may differ."""
        now = self._monotonic()
        seen = self._written.get(what)
        if seen is None or seen[0] != written:
            seen = self._written[what] = (written, now)
        return now - seen[1] <= STALE_SECONDS

    def _forget(self, others: set[str]) -> None:
        self._written = {what: seen for what, seen in self._written.items() if what in others}

    def _failed(self, source: str, message: str) -> None:
        self._errors[source] += 1
        if self._logged.get(source) != message:
            log.warning("collector ray: GET %s: %s; what it tells is left out", PATHS[source], message)
            self._logged[source] = message

    def _works(self, source: str) -> None:
        if self._logged.pop(source, None) is not None:
            log.info("collector ray: GET %s works again", PATHS[source])


def _document(answer: Answer) -> object:
    """Return the JSON of an answer; raises `Unreachable` with the reason, never with what the body says."""
    reason = answer.error or {200: "", 401: UNAUTHORIZED, 403: FORBIDDEN}.get(answer.status, STATUS)
    if reason == STATUS:
        raise Unreachable(f"status {answer.status}, expected 200")
    if reason:
        raise Unreachable(_SAID.get(reason, reason))
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Unreachable(f"{MALFORMED}: expected JSON") from None
