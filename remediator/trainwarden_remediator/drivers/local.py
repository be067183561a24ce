"""Driver `local`: the launcher of `trainwarden up`, over loopback HTTP. One call ends a start and gives the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError, HttpResponse
from trainwarden_remediator.drivers.driver import Absent, Answer, Job, Outcome, Reading, Standing, Subject
from trainwarden_remediator.incident import clean
from trainwarden_remediator.unknown import Unknown

_STANDINGS = {
    "running": Standing.RUNNING,
    "stopping": Standing.ENDING,
    "failed": Standing.FAILED,
    "completed": Standing.COMPLETED,
    "cancelled": Standing.CANCELLED,
}
_CONFLICT, _GONE = 409, 410


class LocalDriver:
    """Talks to one launcher. The intent's id is the token, so a repeated call changes nothing."""

    name = "local"
    two_phase = False

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._http = HttpClient(url, timeout, auth=HttpAuth(token=token))

    def refresh(self) -> None:
        """Nothing is kept: every reading is fresh."""

    def job(self, job_id: str) -> Reading:
        """Read one job."""
        try:
            response = self._http.get("/jobs")
        except HttpError as error:
            return Unknown(f"the launcher is unreachable: {error}")
        if response.status != 200:
            return Unknown(f"the launcher answered {response.status}")
        try:
            found = [entry for entry in response.json() if entry["job_id"] == job_id]
            return _job(found[0]) if found else Absent()
        except (HttpError, KeyError, TypeError, ValueError, AttributeError):
            return Unknown("the launcher gave an unexpected answer")

    def prepare(self, subject: Subject) -> Answer:
        """There is nothing to prepare: `commit` ends the old start itself."""
        return Answer(Outcome.REFUSED, f"job {subject.job_id} needs no preparation")

    def commit(self, subject: Subject) -> Answer:
        """Ask for the next start, from the one that was seen and from no other."""
        path = f"/jobs/{quote(subject.job_id, safe='')}/restart"
        body = {
            "token": subject.intent,
            "expected_generation": subject.generation,
            "reason": subject.reason,
            "intent": subject.intent,
            "environment": dict(subject.environment),
        }
        called = f"POST {path} expected_generation={subject.generation}"
        try:
            response = self._http.post(path, body)
        except HttpError as error:
            return Answer(Outcome.UNCLEAR, f"{called}: {error}")
        reason = _error_of(response)
        detail = f"{called}: {response.status}" + (f" {clean(reason)}" if reason else "")
        if response.status == 202:
            return Answer(Outcome.ACCEPTED, detail)
        # 409 and 410 mean that the job has moved on: reading it again tells how. 5xx may have taken effect.
        moved_on = response.status in (_CONFLICT, _GONE) or response.status >= 500
        return Answer(Outcome.UNCLEAR if moved_on else Outcome.REFUSED, detail)


def _error_of(response: HttpResponse) -> object:
    try:
        body = response.json()
    except HttpError:
        return None
    return body.get("error") if isinstance(body, dict) else None


def _job(entry: Mapping[str, Any]) -> Job:
    state = str(entry["state"])
    return Job(
        job_id=str(entry["job_id"]),
        run_id=str(entry["run_id"]),
        generation=int(entry["generation"]),
        standing=_STANDINGS.get(state, Standing.OTHER),
        state=clean(state, 40),
        tokens={str(token): int(generation) for token, generation in entry.get("tokens", {}).items()},
    )
