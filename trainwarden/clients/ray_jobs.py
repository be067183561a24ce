"""Ray's job API: read one job as it was submitted, submit, stop, delete; and the packages that a job needs.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html for the jobs. An answer to a call
that changes something is never the truth: the next reading decides. Tested with Ray 2.52 and 2.60.
"""

from __future__ import annotations

import enum
import json
import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainwarden.clients.http import MALFORMED
from trainwarden.clients.ray import (
    JOBS_PATH,
    VERSION_PATH,
    RayError,
    RayJob,
    RayVersion,
    answered_data,
    read_document,
    read_jobs,
    read_version,
)
from trainwarden.clients.ray_usage import SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden.clients.http import PathAnswer
    from trainwarden.clients.ray import RayControl

PACKAGES_PATH = "/api/packages/gcs/"
TRAIN_RUNS_PATH = "/api/train/v2/runs/v1"
_ACTORS = "/api/v0/actors?detail=1&limit=10000&filter_predicates=%3D&filter_keys="
_PACKAGE = re.compile(r"gcs://([A-Za-z0-9][A-Za-z0-9._-]{0,254})")
_SUBMISSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_NODE_LABEL = "ray.io/node-id"
# Ray forgets that a package was looked for ten minutes later.
KEEP_SECONDS = 240.0
# Classes of Ray Train's own actors: of its second version, of its first, of both.
_TRAIN_ACTORS = frozenset(("TrainController", "TrainTrainable", "RayTrainWorker"))
_EXISTS = b"already exists"
_EXCEPTION = re.compile(rb"^(?:[A-Za-z_.]+\.)?([A-Za-z_]+(?:Error|Exception)):", re.MULTILINE)


class CallAnswer(enum.Enum):
    """How a call went. UNCLEAR may have taken effect."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class RayAnswer:
    """The answer to a call; `detail` holds nothing that a user wrote."""

    answer: CallAnswer
    detail: str


@dataclass(frozen=True)
class RayReserved:
    """What the entrypoint of a job reserves for itself, beside what its tasks and actors take.

    Attributes:
        num_cpus: cores; 0 is none.
        num_gpus: GPUs.
        memory: bytes.
        resources: custom ones, by name.
        label_selector: of the nodes that it may run on.
    """

    num_cpus: float = 0.0
    num_gpus: float = 0.0
    memory: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    label_selector: Mapping[str, str] = field(default_factory=dict)

    def as_request(self) -> dict[str, Any]:
        """Return the fields of a submission; what is not reserved is left out."""
        return {
            f"entrypoint_{name}": value
            for name, value in (
                ("num_cpus", self.num_cpus),
                ("num_gpus", self.num_gpus),
                ("memory", self.memory),
                ("resources", dict(self.resources)),
                ("label_selector", dict(self.label_selector)),
            )
            if value
        }

    def amounts(self) -> dict[str, float]:
        """Return the amounts by Ray's names of the resources."""
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory), **self.resources}
        return {name: amount for name, amount in named.items() if amount}


@dataclass(frozen=True)
class RayTrain:
    """That Ray Train runs a job, and how often it restarts the workers itself: -1 without end, None if unknown."""

    max_failures: int | None


@dataclass(frozen=True)
class RaySubmission:
    """A job as it was submitted, without what Ray does not return. What users wrote is not shown by `repr`."""

    submission_id: str
    entrypoint: str = field(repr=False)
    metadata: Mapping[str, str] = field(repr=False)
    runtime_env: Mapping[str, Any] = field(repr=False)

    def packages(self) -> list[str]:
        """Return the names of the packages of its runtime environment that Ray itself keeps."""
        return packages_of(self.runtime_env)


@dataclass(frozen=True)
class SubmittedJob:
    """A job as it is now, and as what it was submitted."""

    job: RayJob
    submission: RaySubmission


class RayJobs:
    """The jobs of one cluster. Every reading raises RayError where there is no usable answer."""

    def __init__(self, dashboard: RayControl) -> None:
        self._dashboard = dashboard

    def all(self) -> tuple[RayVersion, dict[str, SubmittedJob]]:
        """Return which session it is, and every job by its id."""
        version, jobs = self._dashboard.get((VERSION_PATH, JOBS_PATH))
        document = read_document(jobs)
        if not isinstance(document, list):
            raise RayError(MALFORMED, f"{MALFORMED}: expected a list of jobs")
        found = [_submitted_job(each) for each in document]
        return read_version(read_document(version)), {each.job.submission_id: each for each in found}

    def some(self, submission_ids: Sequence[str]) -> tuple[RayVersion, dict[str, SubmittedJob | None]]:
        """Return which session it is, and the named jobs; None for one that Ray answers it does not have."""
        version, *answers = self._dashboard.get((VERSION_PATH, *map(_path, submission_ids)))
        found: dict[str, SubmittedJob | None] = {}
        for submission_id, answer in zip(submission_ids, answers, strict=True):
            found[submission_id] = None if answer.status == 404 else _submitted_job(read_document(answer))
        return read_version(read_document(version)), found

    def submission(self, submission_id: str) -> SubmittedJob | None:
        """Return one job; None where Ray answers that it does not have it."""
        return self.some([submission_id])[1][submission_id]

    def version(self) -> RayVersion:
        """Return which Ray it is, and which session."""
        return read_version(self._document(VERSION_PATH))

    def logs(self, submission_id: str) -> str:
        """Return what the entrypoint has written so far; may hold secrets."""
        document = self._document(f"{_path(submission_id)}/logs")
        text = document.get("logs") if isinstance(document, dict) else None
        return text if isinstance(text, str) else ""

    def submit(self, job: RaySubmission, reserved: RayReserved) -> RayAnswer:
        """Submit a job under an id of the caller's. One that Ray has already is accepted: it was submitted before."""
        request = {
            "submission_id": job.submission_id,
            "entrypoint": job.entrypoint,
            "metadata": dict(job.metadata),
            "runtime_env": dict(job.runtime_env),
            **reserved.as_request(),
        }
        answer = self._dashboard.send("POST", JOBS_PATH, json.dumps(request).encode())
        called = f"POST {JOBS_PATH} submission_id={job.submission_id}"
        # Ray gives status 500 where it means 400.
        if answer.status in (400, 500) and _EXISTS in answer.body:
            return RayAnswer(CallAnswer.ACCEPTED, f"{called}: Ray has a job of this id already")
        return _answered(called, answer)

    def stop(self, submission_id: str) -> RayAnswer:
        """Let Ray end a job: SIGTERM, and SIGKILL after $RAY_JOB_STOP_WAIT_TIME_S, 3 s. It returns at once."""
        path = f"{_path(submission_id)}/stop"
        return _answered(f"POST {path}", self._dashboard.send("POST", path, b"{}"))

    def keep_package(self, name: str) -> bool:
        """Return whether Ray has a package; if so it is kept for ten minutes, whatever job ends meanwhile.

        For $RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S of the head, to be exact.
        """
        [answer] = self._dashboard.get((PACKAGES_PATH + quote(name, safe=""),))
        if answer.status == 404:
            return False
        if answer.error or answer.status != 200:
            read_document(answer)  # raises with the reason
        return True

    def upload_package(self, name: str, content: bytes) -> RayAnswer:
        """Give Ray a package, which it keeps until the last job that names it has ended."""
        path = PACKAGES_PATH + quote(name, safe="")
        return _answered(f"PUT {path}", self._dashboard.send("PUT", path, content))

    def reserved(self, submission_id: str) -> RayReserved | None:
        """Return what the entrypoint of a job reserves; None where Ray does not show it any more.

        The job API does not return it; the actor that runs the entrypoint has it, also after its end.
        """
        for actor in self._actors("name", SUPERVISOR + submission_id):
            amounts, labels = actor.get("required_resources"), actor.get("label_selector") or {}
            if actor.get("name") == SUPERVISOR + submission_id and isinstance(amounts, dict):
                numbers = {str(name): float(each) for name, each in amounts.items() if isinstance(each, (int, float))}
                cpus, gpus, memory = (numbers.pop(name, 0.0) for name in ("CPU", "GPU", "memory"))
                # Where nothing is reserved Ray itself binds the entrypoint to the node of the head, older ones by a
                # resource of its name.
                numbers = {name: each for name, each in numbers.items() if not name.startswith("node:")}
                chosen = {name: str(each) for name, each in labels.items() if name != _NODE_LABEL}
                return RayReserved(cpus, gpus, int(memory), numbers, chosen)
        return None

    def living_actors(self, job: RayJob) -> int:
        """Return how many actors of a job live, also of one that has ended. Detached ones outlive it by design."""
        found = self._actors("name", SUPERVISOR + job.submission_id)
        if job.job_id:
            found += [each for each in self._actors("job_id", job.job_id) if not each.get("is_detached")]
        return sum(each.get("state") != "DEAD" for each in found)

    def train(self, job: RayJob) -> RayTrain | None:
        """Return how Ray Train runs a job; None where it does not."""
        if not job.job_id:
            return None  # no driver of it has ever connected
        [answer] = self._dashboard.get((TRAIN_RUNS_PATH,))
        # Ray lists only what drivers with RAY_TRAIN_ENABLE_STATE_TRACKING report; without one, and without Ray Train
        # on the head, the answer is an error.
        found = None if answer.status in (404, 500) else read_train(read_document(answer), job.job_id)
        if found is None:
            names = (str(each.get("class_name")).rpartition(".")[2] for each in self._actors("job_id", job.job_id))
            found = RayTrain(None) if _TRAIN_ACTORS & set(names) else None
        return found

    def _actors(self, key: str, value: str) -> list[dict[str, Any]]:
        document = self._document(f"{_ACTORS}{key}&filter_values={quote(value, safe='')}")
        found = _read(answered_data, document).get("result")
        actors = found.get("result") if isinstance(found, dict) else None
        if not isinstance(actors, list):
            raise RayError(MALFORMED, f"{MALFORMED}: expected a list of actors")
        return [each for each in actors if isinstance(each, dict)]

    def _document(self, path: str) -> object:
        [answer] = self._dashboard.get((path,))
        return read_document(answer)


class PackageKeeper:
    """Lets Ray keep packages, which it deletes when the last job that names them ends, for their next start."""

    def __init__(self, jobs: RayJobs) -> None:
        self._jobs = jobs
        self._looked: dict[str, float] = {}

    def keep(self, names: Sequence[str]) -> None:
        """Look for each that was not looked for within KEEP_SECONDS; raises RayError."""
        for name in names:
            now = time.monotonic()
            if now - self._looked.get(name, -math.inf) >= KEEP_SECONDS:
                self._jobs.keep_package(name)
                self._looked[name] = now


def packages_of(runtime_env: Mapping[str, Any]) -> list[str]:
    """Return the names of the packages of a runtime environment that Ray itself keeps: `x.zip` of `gcs://x.zip`."""
    modules = runtime_env.get("py_modules")
    texts = [runtime_env.get("working_dir"), *(modules if isinstance(modules, list) else [])]
    found = (_PACKAGE.fullmatch(text) for text in texts if isinstance(text, str))
    return list(dict.fromkeys(match[1] for match in found if match))


def paths_of(runtime_env: Mapping[str, Any]) -> list[str]:
    """Return the plain paths among the folders of a runtime environment: Ray fails a job of its API that has one."""
    modules = runtime_env.get("py_modules")
    texts = [runtime_env.get("working_dir"), *(modules if isinstance(modules, list) else [])]
    return [text for text in texts if isinstance(text, str) and text and "://" not in text]


def read_train(document: object, job_id: str) -> RayTrain | None:
    """Read TRAIN_RUNS_PATH: the most that any run of a job is restarted; None without a run of it.

    A Ray that does not list the settings of runs (2.52) leaves that unknown.
    """
    runs = document.get("train_runs") if isinstance(document, dict) else None
    found: list[int | None] = []
    for run in runs if isinstance(runs, list) else ():
        if not isinstance(run, dict) or run.get("job_id") != job_id:
            continue
        count: Any = run
        for key in ("run_settings", "run_config", "failure_config", "max_failures"):
            count = count.get(key) if isinstance(count, dict) else None
        found.append(count if isinstance(count, int) else None)
    known = [each for each in found if each is not None]
    if not found:
        return None
    if len(known) < len(found):
        return RayTrain(None)
    return RayTrain(-1 if min(known) < 0 else max(known))


def _submitted_job(document: object) -> SubmittedJob:
    [job] = _read(read_jobs, [document])
    entrypoint, metadata, runtime_env = (
        document.get(key) if isinstance(document, dict) else None for key in ("entrypoint", "metadata", "runtime_env")
    )
    are_tables = all(isinstance(each, (dict, type(None))) for each in (metadata, runtime_env))
    if not isinstance(entrypoint, str) or not are_tables:
        raise RayError(MALFORMED, f"{MALFORMED}: expected an entrypoint, metadata and a runtime_env")
    return SubmittedJob(job, RaySubmission(job.submission_id, entrypoint, metadata or {}, runtime_env or {}))


def usable_id(submission_id: str) -> bool:
    """Return whether an id can stand in a path, a file name and an attempt key as it is."""
    return _SUBMISSION_ID.fullmatch(submission_id) is not None


def _path(submission_id: str) -> str:
    return JOBS_PATH + quote(submission_id, safe="")


def _read(parse: Any, document: object) -> Any:
    try:
        return parse(document)
    except ValueError as error:
        raise RayError(MALFORMED, f"{MALFORMED}: {error}") from None


def _answered(called: str, answer: PathAnswer) -> RayAnswer:
    """Read an answer. Of its text only the type of an exception is kept: the rest may quote the request."""
    if answer.error:
        return RayAnswer(CallAnswer.UNCLEAR, f"{called}: {answer.error}")
    if answer.status == 200:
        return RayAnswer(CallAnswer.ACCEPTED, f"{called}: 200")
    raised: Sequence[bytes] = _EXCEPTION.findall(answer.body)
    why = f" {raised[-1].decode()}" if raised else ""
    refused = 400 <= answer.status < 500 and answer.status not in (408, 429)
    return RayAnswer(CallAnswer.REFUSED if refused else CallAnswer.UNCLEAR, f"{called}: {answer.status}{why}")
