"""The HTTP routes of the services: what a request of each method is answered with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.contracts.services import TOKEN, WEBHOOK, ask, exporter_pages, metrics_server, remediator

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
_BEARER = {"Authorization": f"Bearer {TOKEN}"}
_ALERT = {"status": "firing", "labels": {"alertname": "TrainRunFailed"}, "startsAt": "2026-01-01T00:00:00Z"}
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
