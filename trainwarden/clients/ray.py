"""Ray: jobs, nodes and resources of a cluster, as its dashboard states them.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html for the jobs. The other paths are
those that Ray's own command line and dashboard read; tested with Ray 2.52 and 2.60.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainwarden.clients import http
from trainwarden.clients.http import HttpAuth, HttpClient, HttpError, PathAnswer, TlsFiles, read_token
from trainwarden.clients.kubernetes import PodExecError
from trainwarden.identity import InvalidRunId, check_run_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden.clients.kubernetes import PodExec

JOBS_PATH = "/api/jobs/"
NODES_PATH = "/api/v0/nodes?limit=10000"
VERSION_PATH = "/api/version"
GPUS_PATH = "/nodes?view=summary"

# The first with tokens, and so the oldest that is supported; none before 2.54 takes a label selector for an entrypoint.
OLDEST_VERSION, LABELS_VERSION = (2, 52), (2, 54)

JOB_STATES = ("pending", "running", "succeeded", "failed", "stopped")
UNDER_WAY = frozenset(("pending", "running"))
NODE_STATES = ("alive", "dead")
RUN_ID_KEY, RUN_ID_VARIABLE = "trainwarden_run_id", "TRAINWARDEN_RUN_ID"
MAX_GPUS = 8192
_MAX_TEXT = 1024

# Further values of `RayError.reason`, beside those of `HttpError`.
TOKEN, UNAUTHORIZED, FORBIDDEN, STATUS, POD = "token", "unauthorized", "forbidden", "status", "pod"

# As Ray's `JobErrorType` has them; one that a later Ray adds is read as other.
_JOB_ERROR_TYPES = frozenset(
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
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class RayError(Exception):
    """The dashboard gave no usable answer; the message is the reason, without what is in an answer.

    Attributes:
        reason: of `HttpError`, or TOKEN (its file cannot be used), UNAUTHORIZED, FORBIDDEN, STATUS or POD.
        stderr: what kubectl wrote, as one line that may hold secrets.
    """

    def __init__(self, reason: str, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.stderr = stderr


class RayDashboard(Protocol):
    """A way to the dashboard of one cluster."""

    def call(self, paths: Sequence[str]) -> str:
        """Return a name for the request, for what reports a call that hangs."""

    def get(self, paths: Sequence[str]) -> list[PathAnswer]:
        """Return an answer for each path; raises RayError if there is none for any."""


class RayControl(RayDashboard, Protocol):
    """A way to the dashboard by which jobs are changed, too."""

    def send(self, method: str, path: str, body: bytes | None = None) -> PathAnswer:
        """Return the answer to a request that may change something; raises RayError if nothing could be sent.

        Where the answer has no status the request may have taken effect.
        """


class RayDashboardOverHttp:
    """The dashboard by its address.

    Args:
        url: of the dashboard; it may lie below a path.
        timeout: seconds for all paths of a request together.
        token_file: of the bearer token, read for each request.
        token: the bearer token itself, where there is no file.
        ca_file: trusted instead of the system's certificates.
        max_body: bytes of an answer at most.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        *,
        token_file: Path | None = None,
        token: str | None = None,
        ca_file: Path | None = None,
        max_body: int = http.MAX_BODY_BYTES,
    ) -> None:
        self.url = url
        self._timeout = timeout
        self._token_file = token_file
        auth = HttpAuth(token=token, token_file=token_file)
        self._http = HttpClient(url, timeout, auth=auth, tls=TlsFiles(ca_file), max_body=max_body)

    def call(self, paths: Sequence[str]) -> str:
        """Return `GET` and the paths."""
        return "GET " + " ".join(path.partition("?")[0] for path in paths)

    def get(self, paths: Sequence[str]) -> list[PathAnswer]:
        """Get one path after the other."""
        _token(self._token_file)
        try:
            return http.get_all(self._http, paths, self._timeout)
        except HttpError as error:
            raise RayError(error.reason, str(error)) from None

    def send(self, method: str, path: str, body: bytes | None = None) -> PathAnswer:
        """Make one request."""
        _token(self._token_file)
        try:
            return http.send(self._http, method, path, body, self._timeout)
        except HttpError as error:
            raise RayError(error.reason, str(error)) from None


class RayDashboardInPod:
    """The dashboard as its head pod sees it: one `kubectl exec` of `clients/http.py` for all paths of a request.

    The token goes over standard input, and is on no command line; without one the program in the pod takes that of its
    own environment.

    Args:
        pod: of the head.
        url: of the dashboard, as the pod sees it.
        timeout: seconds for all paths of a request together.
        token_file: of the bearer token, on this machine, read for each request.
        max_body: bytes of an answer at most.
    """

    def __init__(
        self,
        pod: PodExec,
        url: str,
        timeout: float,
        *,
        token_file: Path | None = None,
        max_body: int = http.MAX_BODY_BYTES,
    ) -> None:
        self._pod, self._url, self._timeout, self._token_file, self._max_body = pod, url, timeout, token_file, max_body
        self._program = ["python3", "-c", Path(http.__file__).read_text(encoding="utf-8")]

    def call(self, paths: Sequence[str]) -> str:  # noqa: ARG002  # one call for all
        """Return `kubectl exec`."""
        return "kubectl exec"

    def get(self, paths: Sequence[str]) -> list[PathAnswer]:
        """Get all paths with one program in the pod."""
        return self._ask(paths)

    def send(self, method: str, path: str, body: bytes | None = None) -> PathAnswer:
        """Make one request with a program in the pod."""
        encoded = None if body is None else base64.b64encode(body).decode()
        try:
            return self._ask([path], {"method": method, "body": encoded})[0]
        except RayError as error:
            if error.reason == TOKEN:
                raise
            return PathAnswer(0, b"", str(error))

    def _ask(self, paths: Sequence[str], more: Mapping[str, Any] | None = None) -> list[PathAnswer]:
        question = {
            "url": self._url,
            "paths": list(paths),
            **(more or {}),
            "token": _token(self._token_file),
            "token_variables": TOKEN_VARIABLES,
            "timeout": self._timeout * 0.8,
            "max_body": self._max_body,
        }
        try:
            output = self._pod.run(
                self._program, self._timeout, stdin=json.dumps(question).encode(), limit=self._max_body * 2
            )
        except PodExecError as error:
            raise RayError(POD, str(error), error.stderr) from None
        try:
            return _split_answers(output, len(paths))
        except (ValueError, TypeError):
            raise RayError(POD, "kubectl exec: the answer from the pod is cut off or none of ours") from None


def _token(file: Path | None) -> str | None:
    try:
        return None if file is None else read_token(file)
    except HttpError as error:
        raise RayError(TOKEN, str(error)) from None


def _split_answers(output: bytes, count: int) -> list[PathAnswer]:
    """Split what `http.main` writes."""
    answers = []
    for _ in range(count):
        head, newline, rest = output.partition(b"\n")
        status, error, length = json.loads(head)
        if not newline or not 0 <= length <= len(rest):
            raise ValueError("cut off")
        answers.append(PathAnswer(int(status), rest[:length], str(error)))
        output = rest[length:]
    return answers


def read_document(answer: PathAnswer) -> object:
    """Return the JSON of an answer; raises RayError with the reason, never with what the body holds."""
    if answer.error:
        raise RayError(answer.error.partition(":")[0], answer.error)
    if answer.status != 200:
        reason = {401: UNAUTHORIZED, 403: FORBIDDEN}.get(answer.status, STATUS)
        raise RayError(reason, f"status {answer.status}, expected 200")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise RayError(http.MALFORMED, f"{http.MALFORMED}: expected JSON") from None


@dataclass(frozen=True)
class RayJob:
    """One job; times in Unix seconds. Nothing else that its user wrote is kept: entrypoints and messages hold secrets.

    Attributes:
        submission_id: Ray's own job id where a program ran without being submitted. At most 1024 foreign characters.
        job_id: Ray's own, as soon as a driver of the job has connected; else empty.
        run_id: in its metadata, else in its environment; empty where neither names a valid one.
        state: of JOB_STATES; empty if it is none of them.
        error_type: Ray's name of the failure, in lower case; empty without one.
        start: when Ray accepted it.
        end: when it ended.
        exit_code: of its command.
    """

    submission_id: str
    job_id: str
    run_id: str
    state: str
    error_type: str
    start: float | None
    end: float | None
    exit_code: float | None


@dataclass(frozen=True)
class RayVersion:
    """Which Ray it is, and which session: a new one begins with each start of the head. Foreign text."""

    version: str
    session: str


@dataclass(frozen=True)
class RayNodeGpus:
    """The GPUs of one node as its agent last reported them.

    Attributes:
        node: its host name; foreign text of at most 1024 characters.
        reported: when, Unix seconds by the node's own clock.
        busy: by GPU index, 0 to 1.
    """

    node: str
    reported: float
    busy: dict[str, float]


def read_jobs(document: object) -> list[RayJob]:
    """Return the jobs of JOBS_PATH, each once; raises ValueError if the document is no list of jobs."""
    if not isinstance(document, list):
        raise ValueError("expected a list of jobs")  # noqa: TRY004  # one exception for all documents
    jobs: dict[str, RayJob] = {}
    for item in document:
        if isinstance(item, dict):
            job = _job(item)
            if job.submission_id:
                jobs.setdefault(job.submission_id, job)
    if document and not jobs:
        raise ValueError("expected a list of jobs")
    return list(jobs.values())


def read_nodes(document: object) -> dict[str, int]:
    """Return the number of nodes in each of NODE_STATES, from NODES_PATH; raises ValueError if it is no list."""
    found = answered_data(document).get("result")
    nodes = found.get("result") if isinstance(found, dict) else None
    if not isinstance(nodes, list):
        raise ValueError("expected a list of nodes")  # noqa: TRY004  # one exception for all documents
    states = Counter(str(node.get("state")).lower() for node in nodes if isinstance(node, dict))
    return {state: states[state] for state in NODE_STATES}


def read_gpus(document: object) -> list[RayNodeGpus]:
    """Return the GPUs of live nodes, from GPUS_PATH; raises ValueError if it is another document."""
    nodes = answered_data(document).get("summary")
    if not isinstance(nodes, list):
        raise ValueError("expected a summary of nodes")  # noqa: TRY004  # one exception for all documents
    found: dict[str, RayNodeGpus] = {}
    left = MAX_GPUS
    for node in nodes:
        read = _node_gpus(node) if isinstance(node, dict) else None
        if read is not None and read.node not in found and len(read.busy) <= left:
            found[read.node] = read
            left -= len(read.busy)
    return list(found.values())


def read_version(document: object) -> RayVersion:
    """Read VERSION_PATH; what is missing is empty."""
    version = document if isinstance(document, dict) else {}
    return RayVersion(_text(version.get("ray_version")), _text(version.get("session_name")))


def is_older(version: str, than: tuple[int, int]) -> bool:
    """Return whether a version of Ray (`2.52.0`) is older; False where it is none that can be read."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", version)
    return match is not None and (int(match[1]), int(match[2])) < than


def _job(item: Mapping[str, Any]) -> RayJob:
    job_id = _text(item.get("job_id"))
    state = _text(item.get("status")).lower()
    return RayJob(
        _text(item.get("submission_id")) or job_id,
        job_id,
        _run_id(item),
        state if state in JOB_STATES else "",
        _error_type(item.get("error_type")),
        _milliseconds(item.get("start_time")),
        _milliseconds(item.get("end_time")),
        _number(item.get("driver_exit_code")),
    )


def _run_id(item: Mapping[str, Any]) -> str:
    metadata, environment = item.get("metadata"), item.get("runtime_env")
    variables = environment.get("env_vars") if isinstance(environment, dict) else None
    for names, key in ((metadata, RUN_ID_KEY), (variables, RUN_ID_VARIABLE)):
        value = names.get(key) if isinstance(names, dict) else None
        if isinstance(value, str):
            try:
                return check_run_id(value)
            except InvalidRunId:
                continue
    return ""


def _error_type(value: object) -> str:
    if not isinstance(value, str) or not value:
        return ""
    return value.lower() if value in _JOB_ERROR_TYPES else "other"


def answered_data(document: object) -> dict[str, Any]:
    """Return the data of an answer; raises ValueError if it has none."""
    data = document.get("data") if isinstance(document, dict) and document.get("result") is True else None
    if not isinstance(data, dict):
        raise ValueError("expected an answer with data")  # noqa: TRY004  # one exception for all documents
    return data


def _node_gpus(node: dict[str, Any]) -> RayNodeGpus | None:
    raylet, name, now, gpus = node.get("raylet"), node.get("hostname"), node.get("now"), node.get("gpus")
    alive = isinstance(raylet, dict) and raylet.get("state") == "ALIVE"
    if not alive or not isinstance(name, str) or not isinstance(now, (int, float)) or not isinstance(gpus, list):
        return None
    busy = {}
    for gpu in gpus:
        index, percent = (gpu.get("index"), gpu.get("utilizationGpu")) if isinstance(gpu, dict) else (None, None)
        if isinstance(index, int) and isinstance(percent, (int, float)) and 0 <= percent <= 100:
            busy[str(index)] = percent / 100
    return RayNodeGpus(_text(name), float(now), busy)


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _milliseconds(value: object) -> float | None:
    number = _number(value)
    return number / 1000 if number and number > 0 else None
