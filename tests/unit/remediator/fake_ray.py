"""A Ray cluster in memory, behind the way to its dashboard, for what a real one cannot be made to do at will."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from trainwarden.clients.http import PathAnswer
from trainwarden.clients.ray import RayError

END = 1_800_000_000_000


class FakeRay:
    """Answers as Ray 2.60 does.

    `jobs` are the documents of the job API, by submission; `logs` the output of those that have one; `reserved` what
    their entrypoints reserve; `actors` the classes of other actors, by Ray's id of their job; `train_runs` None where
    nothing reports any. The next request that changes something is lost with its effect while `lost_requests`, or loses
    its answer while `lost_answers`.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.reserved: dict[str, dict[str, float]] = {}
        self.packages: dict[str, bytes] = {}
        self.logs: dict[str, str] = {}
        self.living: set[str] = set()
        self.train_runs: list[dict[str, Any]] | None = []
        self.actors: dict[str, list[str]] = {}
        self.session, self.version = "session_1", "2.60.0"
        self.is_down = False
        self.lost_requests = self.lost_answers = 0
        self.made: list[tuple[str, str]] = []
        self.on_stop: Callable[[str], None] = self.end
        self.on_start: Callable[[str], None] = lambda _job: None
        self.on_package: Callable[[str], None] = lambda _name: None

    def add(self, submission_id: str, run_id: str, state: str = "RUNNING", **fields: Any) -> dict[str, Any]:
        """Put a job there; return its document."""
        self.jobs[submission_id] = {
            "submission_id": submission_id,
            "job_id": None,
            "status": state,
            "entrypoint": "python train.py",
            "metadata": {"trainwarden_run_id": run_id},
            "runtime_env": None,
            "start_time": 1_000_000,
            "end_time": None,
            **fields,
        }
        self.reserved.setdefault(submission_id, {})
        return self.jobs[submission_id]

    def end(self, submission_id: str, state: str = "STOPPED") -> None:
        """End a job."""
        self.jobs[submission_id] |= {"status": state, "end_time": END}

    def call(self, paths: Sequence[str]) -> str:
        return " ".join(paths)

    def get(self, paths: Sequence[str]) -> list[PathAnswer]:
        if self.is_down:
            raise RayError("connection", "connection: refused")
        return [self._answer(path) for path in paths]

    def send(self, method: str, path: str, body: bytes | None = None) -> PathAnswer:
        if self.is_down:
            return PathAnswer(0, b"", "connection: refused")
        self.made.append((method, path))
        if self.lost_requests:
            self.lost_requests -= 1
            return PathAnswer(0, b"", "timeout: no complete answer")
        answer = self._change(method, path, body or b"")
        if self.lost_answers:
            self.lost_answers -= 1
            return PathAnswer(0, b"", "timeout: no complete answer")
        return answer

    def _change(self, method: str, path: str, body: bytes) -> PathAnswer:
        if method == "PUT":
            self.packages[path.rpartition("/")[2]] = body
            return _json({})
        if path.endswith("/stop"):
            job = path.split("/")[-2]
            if job not in self.jobs:
                return PathAnswer(404, b"", "")
            if self.jobs[job]["status"] == "RUNNING":
                self.on_stop(job)
            return _json({"stopped": True})
        request = json.loads(body)
        job = request["submission_id"]
        if job in self.jobs:
            return PathAnswer(500, f"ValueError: Job with submission_id {job} already exists.".encode(), "")
        reserved = {"CPU": "num_cpus", "GPU": "num_gpus"}
        found = {name: request[f"entrypoint_{key}"] for name, key in reserved.items() if f"entrypoint_{key}" in request}
        self.reserved[job] = found
        self.add(job, "", **{key: request[key] for key in ("entrypoint", "metadata", "runtime_env")})
        self.on_start(job)
        return _json({"submission_id": job})

    def _answer(self, path: str) -> PathAnswer:
        plain, _, query = path.partition("?")
        name = unquote(plain.rpartition("/")[2])
        if plain == "/api/version":
            return _json({"ray_version": self.version, "session_name": self.session})
        if plain == "/api/jobs/":
            return _json(list(self.jobs.values()))
        if plain.startswith("/api/jobs/") and plain.endswith("/logs"):
            job = unquote(plain.split("/")[-2])
            return _json({"logs": self.logs[job]}) if job in self.logs else PathAnswer(404, b"", "")
        if plain.startswith("/api/jobs/"):
            return _json(self.jobs[name]) if name in self.jobs else PathAnswer(404, b"", "")
        if plain.startswith("/api/packages/"):
            self.on_package(name)
            return PathAnswer(200 if name in self.packages else 404, b"", "")
        if plain.startswith("/api/train/"):
            if self.train_runs is None:
                return PathAnswer(500, b"Train state data is not available.", "")
            return _json({"train_runs": self.train_runs})
        if plain == "/api/v0/actors":
            job = unquote(query).rpartition("_ray_internal_job_actor_")[2]
            state = "ALIVE" if job in self.living else "DEAD"
            actors = [
                {"name": f"_ray_internal_job_actor_{each}", "state": state, "required_resources": amounts}
                for each, amounts in self.reserved.items()
                if each == job
            ]
            job_id = unquote(query).partition("filter_keys=job_id&filter_values=")[2]
            actors += [{"class_name": each, "state": "DEAD"} for each in self.actors.get(job_id, ())]
            return _json({"result": True, "data": {"result": {"result": actors}}})
        raise AssertionError(path)


def _json(document: object) -> PathAnswer:
    return PathAnswer(200, json.dumps(document).encode(), "")
