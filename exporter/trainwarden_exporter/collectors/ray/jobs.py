"""The jobs that Ray's dashboard lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.core.redaction import plain, truncate

if TYPE_CHECKING:
    from collections.abc import Mapping

STATES = ("pending", "running", "succeeded", "failed", "stopped")
UNDER_WAY = frozenset(("pending", "running"))
KEPT_SECONDS = 24 * 3600.0
RUN_ID_KEY, RUN_ID_VARIABLE = "trainwarden_run_id", "TRAINWARDEN_RUN_ID"

# As Ray's `JobErrorType` has them; one that a later Ray adds is shown as other.
ERROR_TYPES = frozenset(
    (
        "RUNTIME_ENV_SETUP_FAILURE",
        "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
        "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
        "JOB_SUPERVISOR_ACTOR_DIED",
        "JOB_ENTRYPOINT_COMMAND_START_ERROR",
        "JOB_ENTRYPOINT_COMMAND_ERROR",
    )
)


@dataclass(frozen=True)
class Job:
    """One job; times in Unix seconds. Of what its user wrote, only its ids are kept.

    Attributes:
        submission_id: of a job that nobody submitted, Ray's own job id.
        job_id: Ray's own, as soon as a driver of the job has connected; else empty.
        run_id: empty where it names none that is valid.
        state: of `STATES`; empty if it is none of them.
        error_type: how Ray names what went wrong, in lower case; empty while nothing did.
    """

    submission_id: str
    job_id: str
    run_id: str
    state: str
    error_type: str
    start: float | None
    end: float | None
    exit_code: float | None

    @property
    def key(self) -> dict[str, str]:
        """The labels of its series."""
        return {"submission_id": self.submission_id, "run_id": self.run_id}


def read_jobs(document: object) -> list[Job]:
    """Return the jobs of `GET /api/jobs/`, each once; raises `ValueError` if the document is no list of jobs."""
    if not isinstance(document, list):
        raise ValueError("expected a list of jobs")  # noqa: TRY004  # the callers' one exception
    jobs: dict[str, Job] = {}
    for item in document:
        if isinstance(item, dict):
            job = _job(item)
            if job.submission_id:
                jobs.setdefault(job.submission_id, job)
    if document and not jobs:
        raise ValueError("expected a list of jobs")
    return list(jobs.values())


def shown(jobs: list[Job], now: float, limit: int) -> tuple[list[Job], int]:
    """Return the jobs under way and those that ended within a day, and how many were left out to keep to `limit`.

    Those under way come first, each kind the latest first.
    """
    young = [job for job in jobs if job.state in UNDER_WAY or now - (job.end or job.start or 0.0) <= KEPT_SECONDS]
    young.sort(key=lambda job: (job.state in UNDER_WAY, job.start or 0.0), reverse=True)
    return sorted(young[:limit], key=lambda job: job.submission_id), len(young[limit:])


def expected_runs(jobs: list[Job]) -> dict[str, float]:
    """Return the runs whose jobs are under way, and since when each is: the latest start of its jobs."""
    since: dict[str, float] = {}
    for job in jobs:
        if job.run_id and job.state in UNDER_WAY and job.start is not None:
            since[job.run_id] = max(job.start, since.get(job.run_id, 0.0))
    return since


def _job(item: Mapping[str, Any]) -> Job:
    job_id = _text(item.get("job_id"))
    state = _text(item.get("status")).lower()
    return Job(
        _text(item.get("submission_id")) or job_id,
        job_id,
        _run_id(item),
        state if state in STATES else "",
        _error_type(item.get("error_type")),
        _milliseconds(item.get("start_time")),
        _milliseconds(item.get("end_time")),
        _number(item.get("driver_exit_code")),
    )


def _run_id(item: Mapping[str, Any]) -> str:
    metadata, environment = item.get("metadata"), item.get("runtime_env")
    variables = environment.get("env_vars") if isinstance(environment, dict) else None
    for names, key in ((metadata, RUN_ID_KEY), (variables, RUN_ID_VARIABLE)):
        named = names.get(key) if isinstance(names, dict) else None
        if isinstance(named, str):
            try:
                return check_run_id(named)
            except InvalidRunId:
                continue
    return ""


def _error_type(value: object) -> str:
    if not isinstance(value, str) or not value:
        return ""
    return value.lower() if value in ERROR_TYPES else "other"


def _text(value: object) -> str:
    return truncate(plain(value[:1024]), 128) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _milliseconds(value: object) -> float | None:
    number = _number(value)
    return number / 1000 if number and number > 0 else None
