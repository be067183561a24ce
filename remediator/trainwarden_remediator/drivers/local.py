"""Driver `local`: the launcher of `trainwarden up`, over loopback HTTP. One call ends a start and gives the next."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError, HttpResponse
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
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

_STATES = {
    "running": JobState.RUNNING,
    "stopping": JobState.ENDING,
    "failed": JobState.FAILED,
    "completed": JobState.COMPLETED,
    "cancelled": JobState.CANCELLED,
}
_CONFLICT, _GONE = 409, 410


class LocalDriver:
    """The jobs of one launcher. The incident's id is the token of the new start, so a repeated call changes nothing."""

    name = "local"
    shape = Shape.ONE_CALL

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._http = HttpClient(url, timeout, auth=HttpAuth(token=token))
        self._jobs: HttpResponse | HttpError | None = None

    def snapshot(self, job_ids: Collection[str] = ()) -> LocalDriver:  # noqa: ARG002  # it reads all of them anyway
        """Return a driver that has read nothing yet."""
        fresh = copy.copy(self)
        fresh._jobs = None  # noqa: SLF001  # of the same class
        return fresh

    def job(self, job_id: str) -> Reading:
        """Return one job of the list, which is read once."""
        jobs = self._read(job_id)
        return jobs if isinstance(jobs, Unknown) else next(iter(jobs), Absent())

    def jobs(self) -> Sequence[ScheduledJob] | Unknown:
        """Return every job."""
        return self._read()

    def _read(self, only: str | None = None) -> list[ScheduledJob] | Unknown:
        if self._jobs is None:
            try:
                self._jobs = self._http.get("/jobs")
            except HttpError as error:
                self._jobs = error
        response = self._jobs
        if isinstance(response, HttpError):
            return Unknown(f"the launcher is unreachable: {response}")
        if response.status != 200:
            return Unknown(f"the launcher answered {response.status}")
        try:
            return [_job(entry) for entry in response.json() if only in (None, entry["job_id"])]
        except (HttpError, KeyError, TypeError, ValueError, AttributeError):
            return Unknown("the launcher gave an unexpected answer")

    def boot(self) -> str:
        """Return that the launcher, which ends with its jobs, forgets nothing."""
        return ""

    def obstacles(self, job: ScheduledJob) -> Sequence[str]:
        """Return that there is none: the launcher ends and starts all of its jobs."""
        return [] if job.refusal is None else [job.refusal]

    def submitted(self, target: RestartTarget) -> Sequence[ScheduledJob]:  # noqa: ARG002  # there is none of any
        """Return that there is none: a restart keeps the job."""
        return ()

    def discard(self, target: RestartTarget) -> CallResult:
        """Refuse: nothing is submitted."""
        return CallResult(CallOutcome.REFUSED, f"job {target.successor} was not submitted by the remediator")

    def prepare(self, target: RestartTarget) -> CallResult:
        """Refuse: `commit` ends the old start itself."""
        return CallResult(CallOutcome.REFUSED, f"job {target.job_id} needs no preparation")

    def exclude(self, target: RestartTarget) -> CallResult:
        """Refuse: all jobs run on this machine."""
        return CallResult(CallOutcome.REFUSED, f"job {target.job_id} can run on this machine alone")

    def commit(self, target: RestartTarget) -> CallResult:
        """Replace the start that the incident is about, and no other, by the next."""
        path = f"/jobs/{quote(target.job_id, safe='')}/restart"
        body = {
            "token": target.incident,
            "expected_generation": target.generation,
            "reason": target.reason,
            "intent": target.incident,
            "environment": dict(target.environment),
        }
        called = f"POST {path} expected_generation={target.generation}"
        try:
            response = self._http.post(path, body)
        except HttpError as error:
            return CallResult(CallOutcome.UNCLEAR, f"{called}: {error}")
        reason = _error_of(response)
        detail = f"{called}: {response.status}" + (f" {clean(reason)}" if reason else "")
        if response.status == 202:
            return CallResult(CallOutcome.ACCEPTED, detail)
        # 409 and 410 mean that the job has moved on: the next reading shows how. 5xx may have taken effect.
        moved_on = response.status in (_CONFLICT, _GONE) or response.status >= 500
        return CallResult(CallOutcome.UNCLEAR if moved_on else CallOutcome.REFUSED, detail)


def _error_of(response: HttpResponse) -> object:
    try:
        body = response.json()
    except HttpError:
        return None
    return body.get("error") if isinstance(body, dict) else None


def _job(entry: Mapping[str, Any]) -> ScheduledJob:
    state = str(entry["state"])
    return ScheduledJob(
        job_id=str(entry["job_id"]),
        run_id=str(entry["run_id"]),
        generation=int(entry["generation"]),
        state=_STATES.get(state, JobState.OTHER),
        scheduler_state=clean(state, 40),
        tokens={str(token): int(generation) for token, generation in entry.get("tokens", {}).items()},
    )
