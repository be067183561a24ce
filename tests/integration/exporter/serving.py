"""A server in its thread, and a collector behind it that waits until it is let go."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import whole
from trainwarden_exporter.web.server import REQUEST_SECONDS, ExporterServer
from trainwarden_exporter.web.site import Site


class Beat:
    """A collector that waits until it is let go, and whose label holds what HTML must not."""

    name = "<beat>"

    def __init__(self) -> None:
        self.go = threading.Event()

    def collect(self) -> Iterable[Metric]:
        self.go.wait()
        family = GaugeMetricFamily("beat", "Help.")
        family.add_metric([], 1)
        yield family


class Serving:
    """A server in its thread, and the collector behind it."""

    def __init__(self, request_seconds: float = REQUEST_SECONDS, **options: Any) -> None:
        self.collector = Beat()
        self.collection = Collection([Sampler(whole(self.collector, 0.01, 60))])
        self.server = ExporterServer(("127.0.0.1", 0), Site(self.collection, **options), request_seconds)
        self.port = self.server.port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def ask(
        self, path: str, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        if tls is not None:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=30, context=tls)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def sample(self) -> None:
        self.collector.go.set()
        self.collection.sample_once()
