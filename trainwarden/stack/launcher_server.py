"""The launcher's job over loopback HTTP, for the remediator's `local` driver."""

from __future__ import annotations

import hmac
import json
from http import HTTPStatus
from typing import Any

from trainwarden.server.messages import BadRequest, Request, Response, json_response
from trainwarden.server.server import HttpServer
from trainwarden.stack.launcher import Job, JobOver, Launcher, WrongGeneration

_MAX_BODY_BYTES = 64 * 1024
_VARIABLE_PREFIX = "TRAINWARDEN_"


class LauncherServer:
    """Serves one launcher on a free loopback port until `close()`."""

    def __init__(self, launcher: Launcher, token: str) -> None:
        self._launcher = launcher
        self._authorization = f"Bearer {token}".encode()
        self._server = HttpServer([("127.0.0.1", 0)], self._respond, name="trainwarden-launcher")
        self._server.start()

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"http://{self._server.bound[0]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.stop()

    def _respond(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, self._authorization):
            return _error(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
        if request.method == "GET" and request.path == "/jobs":
            return json_response(HTTPStatus.OK, [_as_json(self._launcher.job)])
        job_id = self._launcher.job.job_id
        if request.method != "POST" or request.path != f"/jobs/{job_id}/restart":
            return _error(HTTPStatus.NOT_FOUND, f"no {request.path} here; there is GET /jobs, and the job is {job_id}")
        try:
            return json_response(HTTPStatus.ACCEPTED, _as_json(self._restart(request)))
        except BadRequest as error:
            return _error(error.status, str(error))
        except WrongGeneration as error:
            return _error(HTTPStatus.CONFLICT, f"the job is at generation {error}")
        except JobOver as error:
            return _error(HTTPStatus.GONE, f"the job is {error}")

    def _restart(self, request: Request) -> Job:
        try:
            body = json.loads(request.read_body(_MAX_BODY_BYTES))
        except (ValueError, RecursionError) as error:
            raise _unusable(f"the body is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise _unusable("a JSON object was expected")
        token, generation = body.get("token"), body.get("expected_generation")
        environment = body.get("environment") or {}
        if not isinstance(token, str) or not token:
            raise _unusable("token: a non-empty text was expected")
        if not isinstance(generation, int) or isinstance(generation, bool):
            raise _unusable(f"expected_generation: an integer was expected, not {generation!r}")
        if not isinstance(environment, dict) or not all(
            isinstance(name, str) and name.startswith(_VARIABLE_PREFIX) and isinstance(value, str)
            for name, value in environment.items()
        ):
            raise _unusable(f"environment: texts under names that start with {_VARIABLE_PREFIX} were expected")
        reason, intent = str(body.get("reason", "")), str(body.get("intent", ""))
        return self._launcher.restart(token, generation, reason=reason, intent=intent, environment=environment)


def _unusable(reason: str) -> BadRequest:
    return BadRequest(HTTPStatus.UNPROCESSABLE_ENTITY, reason)


def _error(status: HTTPStatus, reason: str) -> Response:
    return json_response(status, {"error": reason})


def _as_json(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "run_id": job.run_id,
        "generation": job.generation,
        "attempt_key": job.attempt_key,
        "state": job.state,
        "exit_code": job.exit_code,
        "started": job.started,
        "ended": job.ended,
        "tokens": dict(job.tokens),
    }
