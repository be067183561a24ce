"""The services, started in this process on free ports, with an Alertmanager and a Prometheus that a test speaks for."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import prometheus_client
from prometheus_client.registry import Collector

from tests.answering import Answer, AnsweringService, Asked
from tests.waiting import wait_until

TOKEN = "secret"  # of this test alone
WEBHOOK = "/alertmanager/webhook"


def ask(
    address: str, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Return the status and the content type of a response."""
    status, content_type, _ = answer_of(address, method, path, body, headers)
    return status, content_type


def answer_of(
    address: str, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, str, bytes]:
    """Return the status, the content type and the body of a response."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read()
    finally:
        connection.close()


def nothing(asked: Asked) -> tuple[int, object]:
    """Answer as an Alertmanager without alerts and a Prometheus without series do."""
    return 200, vector([]) if asked.path.startswith("/api/v1/") else []


def vector(samples: Sequence[tuple[Mapping[str, str], float]]) -> object:
    """Return what Prometheus answers: labels and value of each sample."""
    now = time.time()
    result = [{"metric": labels, "value": [now, str(value)]} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextlib.contextmanager
def remediator(answer: Answer = nothing) -> Iterator[tuple[str, list[Collector]]]:
    """Yield the address of a remediator that runs, and the collectors of its metrics.

    `answer` is what its Alertmanager and its Prometheus say.
    """
    from trainwarden_remediator.app import serve
    from trainwarden_remediator.cli import parser
    from trainwarden_remediator.config import settings_from

    collectors: list[Collector] = []
    register = prometheus_client.CollectorRegistry.register

    def note(registry: Any, collector: Collector) -> None:
        collectors.append(collector)
        register(registry, collector)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        (home / "token").write_text(TOKEN)
        (home / "runs").mkdir()
        service = AnsweringService(answer)
        stack.callback(service.close)
        words = {
            "web.listen-address": "127.0.0.1:0",
            "web.port-file": home / "port",
            "webhook-token-file": home / "token",
            "state-dir": home / "state",
            "runs-dir": home / "runs",
            "alertmanager-url": service.url,
            "prometheus-url": service.url,
        }
        known: argparse.Namespace = parser().parse_args([f"--{name}={value}" for name, value in words.items()])
        stack.enter_context(mock.patch.object(prometheus_client.CollectorRegistry, "register", note))
        stop = threading.Event()
        thread = threading.Thread(target=serve, args=(settings_from(known), stop, threading.Event()))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        wait_until((home / "port").exists)
        yield (home / "port").read_text().strip(), collectors


@contextlib.contextmanager
def exporter_pages() -> Iterator[str]:
    """Yield the address of a server of the exporter's pages, without any collector."""
    from trainwarden_exporter.sampling.collection import Collection
    from trainwarden_exporter.web.pages import ExporterPages

    with ExporterPages(Collection([])).server([("127.0.0.1", 0)]) as server:
        server.start()
        try:
            yield server.bound[0]
        finally:
            server.stop()


@contextlib.contextmanager
def metrics_server() -> Iterator[str]:
    """Yield the address of the server that a training starts with `MetricsExporter`."""
    from trainwarden_exporter import MetricsExporter

    exporter = MetricsExporter(0, job_name="job")
    assert exporter.start_server()
    try:
        yield str(exporter.bound)
    finally:
        exporter.stop()
