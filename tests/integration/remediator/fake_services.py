"""Alertmanager, Prometheus and the local launcher as one scripted HTTP server: each answer is ours to choose."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.answering import AnsweringService, Asked

LAUNCHER_TOKEN = "launcher-secret"


@dataclass
class Attempt:
    """What the exporter would say of the run."""

    number: int = 0
    key: str = "local:77-1234:0"
    state: str = "running"
    step: float = 41.0
    high_water: float = 41.0
    started: float = 1_700_000_000.0


@dataclass
class World:
    """The truth that the three services tell. `starts` is the log of starts, the oracle of every test."""

    run_id: str = "run-1"
    job_id: str = "77-1234"
    attempt: Attempt = field(default_factory=Attempt)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    job_state: str = "running"
    generation: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    recovers: bool = True
    policy: str = ""
    asked: list[str] = field(default_factory=list)

    def alert(self, name: str = "TrainRunStalled", **labels: str) -> dict[str, Any]:
        """An entry of /api/v2/alerts about the present attempt; it also begins to fire."""
        entry = {
            "labels": {
                "alertname": name,
                "severity": "critical",
                "run_id": self.run_id,
                "job_id": self.job_id,
                "attempt": str(self.attempt.number),
                "scheduler": "local",
                "failure_mode": "stall",
                "error_type": "hang",
                "remediate": "true",
                **labels,
            },
            "annotations": {},
            "startsAt": "2027-01-02T03:04:05.123Z",
            "endsAt": "2027-01-02T03:09:05.123Z",
            "fingerprint": "0123456789abcdef",
            "receivers": [{"name": "remediator"}],
            "generatorURL": "http://prometheus/graph",
            "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        }
        self.alerts.append(entry)
        return entry

    def restart(self, token: str, expected: int) -> tuple[int, object]:
        """The launcher's contract."""
        if token in self.tokens:
            return 202, {}
        if self.job_state in ("completed", "cancelled"):
            return 410, {"error": "the job is over"}
        if expected != self.generation:
            return 409, {"error": f"the job is at generation {self.generation}"}
        self.generation += 1
        self.tokens[token] = self.generation
        self.starts.append(token)
        self.job_state = "running"
        high = self.attempt.high_water
        step = high + 1 if self.recovers else high - 10
        self.attempt = Attempt(
            number=self.attempt.number + 1,
            key=f"local:{self.job_id}:{self.generation}",
            step=step,
            high_water=max(high, step),
            started=self.attempt.started + 60,
        )
        self.alerts.clear()
        return 202, {}


def as_webhook(*entries: dict[str, Any], truncated: int = 0) -> dict[str, Any]:
    """The version 4 body that Alertmanager sends for these alerts."""
    alerts = [
        {
            "status": "firing",
            "labels": entry["labels"],
            "annotations": entry["annotations"],
            # The same moment, as the webhook writes it: with nanoseconds.
            "startsAt": entry["startsAt"].replace("Z", "456789Z"),
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": entry["generatorURL"],
            "fingerprint": entry["fingerprint"],
        }
        for entry in entries
    ]
    return {
        "version": "4",
        "groupKey": '{}:{alertname="TrainRunStalled"}',
        "truncatedAlerts": truncated,
        "receiver": "remediator",
        "status": "firing",
        "alerts": alerts,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
        "notification_reason": "a field of a newer version",
    }


class FakeServices(AnsweringService):
    """Serves a world on a free loopback port until `close()`."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(self._answer)

    def _answer(self, asked: Asked) -> tuple[int, object]:
        world = self._world
        if asked.method == "GET":
            world.asked.append(asked.path)
        authorised = asked.headers.get("Authorization") == f"Bearer {LAUNCHER_TOKEN}"
        if asked.path == "/api/v2/alerts":
            return self._of("alertmanager", 200, world.alerts)
        if asked.path == "/api/v1/query":
            query = asked.query["query"][0]
            about_run = f'run_id="{world.run_id}"' in query and "max_over_time" not in query
            return self._of("prometheus", 200, _vector(world) if about_run else _empty())
        if (asked.method, asked.path) == ("GET", "/jobs") and authorised:
            return self._of("launcher", 200, [_job(world)])
        if (asked.method, asked.path) == ("POST", f"/jobs/{world.job_id}/restart") and authorised:
            body = json.loads(asked.body)
            return self._of("launcher", *world.restart(body["token"], body["expected_generation"]))
        return 404, {}

    def _of(self, service: str, status: int, body: object) -> tuple[int, object]:
        return (502, b"down") if service in self._world.down else (status, body)


def _job(world: World) -> dict[str, Any]:
    return {
        "job_id": world.job_id,
        "run_id": world.run_id,
        "generation": world.generation,
        "attempt_key": f"local:{world.job_id}:{world.generation}",
        "state": world.job_state,
        "exit_code": None,
        "started": 1.0,
        "ended": None,
        "tokens": world.tokens,
    }


def _empty() -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": []}}


def _vector(world: World) -> dict[str, Any]:
    attempt = world.attempt
    target = {"run_id": world.run_id, "instance": "host:9745", "job": "trainwarden"}
    info = {"attempt_key": attempt.key, "job_id": world.job_id, "scheduler": "local"}
    # To Prometheus an empty label is none.
    info |= {"policy": world.policy} if world.policy else {}
    series: list[tuple[str, dict[str, str], float]] = [
        ("training_run_info", info, 1),
        ("training_run_attempt", {}, attempt.number),
        ("training_attempt_start_timestamp_seconds", {}, attempt.started),
        ("training_step", {}, attempt.step),
        ("training_step_high_water", {}, attempt.high_water),
    ]
    series += [
        ("training_run_state", {"state": state}, float(state == attempt.state))
        for state in ("pending", "running", "succeeded", "failed", "cancelled")
    ]
    result: list[dict[str, Any]] = []
    for name, labels, value in series:
        metric: dict[str, str] = {**target, **labels, "__name__": name}
        result.append({"metric": metric, "value": [1.0, str(value)]})
    return {"status": "success", "data": {"resultType": "vector", "result": result}}
