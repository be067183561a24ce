"""The HTTP routes of the services: what a request of each method is answered with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.answering import Asked
from tests.contracts.services import (
    TOKEN,
    WEBHOOK,
    answer_of,
    ask,
    exporter_pages,
    metrics_server,
    remediator,
    vector,
)
from tests.waiting import wait_until

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
_BEARER = {"Authorization": f"Bearer {TOKEN}"}
_ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "TrainRunFailed"},
    "startsAt": "2026-01-01T00:00:00Z",
}
_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
_INCIDENTS = "/api/v1/incidents"
# Paths that a user may guess, beside those that are there.
_GUESSES = (
    "/",
    "/metrics",
    "/health",
    "/healthz",
    "/-/healthy",
    "/-/ready",
    "/-/reload",
    WEBHOOK,
    _INCIDENTS,
    "/other",
)


def lines() -> Iterator[str]:
    """Yield a line for each path, and for requests of special forms: their status and content type."""
    for name, service in (("exporter", exporter_pages), ("metrics-server", metrics_server)):
        with service() as address:
            yield from _routes(name, address)
            yield _line(name, address, "GET", "/metrics", headers=_OPENMETRICS, note="OpenMetrics")
            yield _line(name, address, "GET", "/metrics?collect[]=runs")
            yield _line(name, address, "GET", "/metrics?exclude[]=runs")
            yield _line(name, address, "GET", "/metrics?collect[]=nothing")
            yield _line(name, address, "GET", "/metrics?collect[]=runs&exclude[]=logs")
    with remediator() as (address, _):
        yield from _routes("remediator", address)
        yield from _routes("remediator", address, _BEARER)
        yield _line("remediator", address, "GET", f"{_INCIDENTS}?run_id=r1", headers=_BEARER)
        for note, body in _payloads():
            yield _line("remediator", address, "POST", WEBHOOK, body, _BEARER, note)
    with remediator(_failed_run) as (address, _):
        yield f"# an incident of {_INCIDENTS}: key | type"
        yield from dict.fromkeys(_keys("", _incident(address)))


def _failed_run(asked: Asked) -> tuple[int, object]:
    """Answer as an Alertmanager and a Prometheus do that know one run, which has failed."""
    if asked.path.startswith("/api/v1/"):
        run = {"run_id": "r1", "attempt_key": "slurm:4711:0", "job_id": "4711", "scheduler": "slurm", "state": "failed"}
        values = {"info": 1.0, "attempt": 0.0, "state": 1.0}
        samples = [({**run, "__name__": f"training_run_{name}"}, value) for name, value in values.items()]
        return 200, vector(samples if "training_run_info" in asked.query["query"][0] else [])
    labels = {**_ALERT["labels"], "run_id": "r1", "attempt": "0", "remediate": "true", "failure_mode": "crash"}
    status = {"state": "active", "inhibitedBy": [], "silencedBy": []}
    return 200, [{"labels": labels, "annotations": {}, "startsAt": _ALERT["startsAt"], "status": status}]


def _incident(address: str) -> Any:
    def incidents() -> Any:
        found = json.loads(answer_of(address, "GET", _INCIDENTS, headers=_BEARER)[2])
        return found[0] if found and found[0]["facts"] else None

    return wait_until(incidents, "the remediator decides")


def _keys(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _keys(f"{name}.{key}" if name else key, below)
    elif isinstance(value, list) and value:
        for below in value:
            yield from _keys(f"{name}[]", below)
    else:
        yield f"{name} | {type(value).__name__}"


def _routes(name: str, address: str, headers: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield a line for each path: what each method is answered with, and the content type of GET."""
    note = " (bearer)" if headers else ""
    for path in _GUESSES:
        answers = {method: ask(address, method, path, headers=headers) for method in _METHODS}
        shown = ", ".join(f"{method} {status}" for method, (status, _) in answers.items())
        yield f"{name}: {path}{note} | {shown} | {answers['GET'][1]}"


def _payloads() -> Iterator[tuple[str, str]]:
    payload: dict[str, Any] = {"version": "4", "alerts": [_ALERT]}
    yield "version 4", json.dumps(payload)
    yield "version 4 of no alerts", json.dumps({**payload, "alerts": []})
    yield "more keys", json.dumps({**payload, "receiver": "remediator", "groupKey": "{}", "truncatedAlerts": 1})
    for version in ("3", "5", 4):
        yield f"version {version!r}", json.dumps({**payload, "version": version})
    for key in ("status", "labels", "startsAt"):
        yield (
            f"an alert without {key}",
            json.dumps({**payload, "alerts": [{name: value for name, value in _ALERT.items() if name != key}]}),
        )
    yield "no JSON", "{"
    yield "1001 alerts", json.dumps({**payload, "alerts": [_ALERT] * 1001})
    yield "over 1 MiB", json.dumps({**payload, "more": "x" * 2**20})


def _line(
    name: str,
    address: str,
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    note: str = "",
) -> str:
    status, content_type = ask(address, method, path, body, headers)
    return f"{name}: {method} {path}{f' ({note})' if note else ''} | {status} | {content_type}"
