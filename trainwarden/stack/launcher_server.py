"""The launcher's job over loopback HTTP, for the remediator's `local` driver."""

from __future__ import annotations

import hmac
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainwarden.stack.launcher import Job, JobOver, Launcher, WrongGeneration

_MAX_BODY_BYTES = 64 * 1024
_SECONDS = 10
_VARIABLE_PREFIX = "TRAINWARDEN_"


class _Bad(Exception):
    """A request that cannot be honoured; the message says what was expected."""


class LauncherServer:
    """Serves one launcher on a free loopback port until `close()`."""

    def __init__(self, launcher: Launcher, token: str) -> None:
        handler = type("Handler", (_Handler,), {"launcher": launcher, "token": token})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="launcher-http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    launcher: Launcher
    token: str
    timeout = _SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self._authorised():
            return
        if self.path != "/jobs":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no {self.path} here; there is /jobs"})
            return
        self._answer(HTTPStatus.OK, [_as_json(self.launcher.job)])

    def do_POST(self) -> None:
        if not self._authorised():
            return
        job_id = self.launcher.job.job_id
        if self.path != f"/jobs/{job_id}/restart":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"no {self.path} here; the job is {job_id}"})
            return
        try:
            job = self._restart(self._body())
        except _Bad as error:
            self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)})
        except WrongGeneration as error:
            self._answer(HTTPStatus.CONFLICT, {"error": f"the job is at generation {error}"})
        except JobOver as error:
            self._answer(HTTPStatus.GONE, {"error": f"the job is {error}"})
        else:
            self._answer(HTTPStatus.ACCEPTED, _as_json(job))

    def _restart(self, body: dict[str, Any]) -> Job:
        token, generation = body.get("token"), body.get("expected_generation")
        environment = body.get("environment") or {}
        if not isinstance(token, str) or not token:
            message = "token: a non-empty text was expected"
            raise _Bad(message)
        if not isinstance(generation, int) or isinstance(generation, bool):
            message = f"expected_generation: an integer was expected, not {generation!r}"
            raise _Bad(message)
        if not isinstance(environment, dict) or not all(
            isinstance(name, str) and name.startswith(_VARIABLE_PREFIX) and isinstance(value, str)
            for name, value in environment.items()
        ):
            message = f"environment: texts under names that start with {_VARIABLE_PREFIX} were expected"
            raise _Bad(message)
        reason, intent = str(body.get("reason", "")), str(body.get("intent", ""))
        return self.launcher.restart(token, generation, reason=reason, intent=intent, environment=environment)

    def _body(self) -> dict[str, Any]:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            message = "Content-Length is missing"
            raise _Bad(message) from None
        if not 0 <= length <= _MAX_BODY_BYTES:
            message = f"a body of at most {_MAX_BODY_BYTES} bytes was expected, not {length}"
            raise _Bad(message)
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError as error:
            message = f"the body is no JSON: {error}"
            raise _Bad(message) from None
        if not isinstance(body, dict):
            message = "a JSON object was expected"
            raise _Bad(message)
        return body

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return True
        self.close_connection = True
        self._answer(HTTPStatus.UNAUTHORIZED, {"error": "a bearer token is needed"})
        return False

    def _answer(self, status: HTTPStatus, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Requests are no news."""


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
