"""The exporter's pages on a free port, and a collector behind them that waits until a test releases it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from trainwarden.server.limits import Limits
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task
from trainwarden_exporter.web.pages import ExporterPages


class Beat:
    """A collector that waits until it is released, and whose label holds what HTML must not."""

    name = "<beat>"

    def __init__(self) -> None:
        self.go = threading.Event()

    def collect(self) -> Iterable[Metric]:
        self.go.wait()
        family = GaugeMetricFamily("beat", "Help.")
        family.add_metric([], 1)
        yield family


class Serving:
    """A server of the exporter's pages, and the collector behind it."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.collector = Beat()
        self.collection = Collection([Sampler(single_task(self.collector, 0.01, 60))])
        self.pages = ExporterPages(self.collection, **options)
        self.server = self.pages.server([("127.0.0.1", 0)], limits)
        self.server.start()

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def sample(self) -> None:
        self.collector.go.set()
        self.collection.sample_once()
