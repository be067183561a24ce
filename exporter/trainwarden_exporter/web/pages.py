"""The exporter's pages: metrics out of memory, health, and a landing page."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from trainwarden.server.limits import Limits
from trainwarden.server.messages import Request, Response, plain
from trainwarden.server.server import HttpServer
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_exporter.core.exposition import CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE
from trainwarden_exporter.registry import SPECS
from trainwarden_exporter.sampling import metrics

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from trainwarden.server.web_config import WebConfig
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.sampling.collection import Collection

READING = ("GET", "HEAD")
# What a scrape that comes before the first samples leaves of its own deadline, and waits at most.
SCRAPE_SLACK_SECONDS = 0.5
SCRAPE_WAIT_SECONDS = 5.0
HTML = "text/html; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
# No version means any; clients of today name 1.0.0, older ones 0.0.1, which reads the same.
OPENMETRICS_VERSIONS = {"", "0.0.1", "1.0.0"}
_TEXT_FORMATS = (("text/plain", ("", "0.0.4")), ("text/*", ("",)), ("*/*", ("",)))


class ExporterPages:
    """Answers requests for the pages of one exporter.

    Attributes:
        off: names the collectors that do not run here, each with the reason.
    """

    def __init__(
        self, collection: Collection, telemetry_path: str = "/metrics", web_config: WebConfig | None = None
    ) -> None:
        self.collection = collection
        self.telemetry_path = telemetry_path
        self.off = ""
        self._web_config = web_config
        collection.extra.append(self._report_web_config)
        self._sampled = False
        # One page at a time, which takes no longer than several at once: together they would take much memory.
        self._making = threading.Lock()
        # The last page of metrics and its compressed form, replaced together.
        self._compressed: tuple[bytes, bytes] = (b"", b"")

    def server(self, addresses: Sequence[tuple[str, int] | socket.socket], limits: Limits | None = None) -> HttpServer:
        """Return a server of these pages, not started yet; raises `OSError` if an address cannot be bound."""
        return HttpServer(
            addresses, self.respond, name="trainwarden-exporter", web_config=self._web_config, limits=limits
        )

    def respond(self, request: Request) -> Response:
        """Return the response to a request, compressed where the client accepts it."""
        if request.method not in READING:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", ("Allow", ", ".join(READING)))
        page = self._page(request)
        body = page.body
        encoding: tuple[tuple[str, str], ...] = ()
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            body, encoding = self._gzip(body), (("Content-Encoding", "gzip"),)
        headers = (*page.headers, *encoding, ("Vary", "Accept, Accept-Encoding"))
        return Response(page.status, page.content_type, body, headers)

    def _page(self, request: Request) -> Response:
        path = request.path
        if path == self.telemetry_path:
            return self._metrics(request)
        if path == "/":
            from trainwarden_exporter.web.landing import landing_page  # noqa: PLC0415  # 7 KB of HTML that a scrape never needs

            statuses, released = self.collection.statuses(), self.collection.released
            page = landing_page(statuses, self.telemetry_path, released, self.off)
            return Response(HTTPStatus.OK, HTML, page)
        if path == "/-/healthy":
            return plain(HTTPStatus.OK, "OK")
        if path == "/-/ready":
            waiting = self._waiting(None)
            if waiting:
                return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"waiting for {', '.join(waiting)}")
            return plain(HTTPStatus.OK, "OK")
        return plain(HTTPStatus.NOT_FOUND, "not found")

    def _metrics(self, request: Request) -> Response:
        try:
            only = self._requested_collectors(request)
        except ValueError as error:
            return plain(HTTPStatus.BAD_REQUEST, str(error))
        self._await_first_samples(only, request.headers.get("x-prometheus-scrape-timeout-seconds", ""))
        openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        with self._making:
            page = self.collection.page(only, openmetrics=openmetrics)
        self.collection.scraped(only, request.client)
        return Response(HTTPStatus.OK, OPENMETRICS_CONTENT_TYPE if openmetrics else CONTENT_TYPE, page)

    def _requested_collectors(self, request: Request) -> frozenset[str] | None:
        """Return the collectors that the query names; None for all. One that does not run here has no samples."""
        query = request.query()
        # A collector may be named as its flag is: gpu-jobs.
        requested = {
            key: {value.replace("-", "_") for name, value in query if name == key} for key in ("collect[]", "exclude[]")
        }
        known = {spec.name for spec in SPECS} | set(self.collection.names)
        for key, names in requested.items():
            if not names <= known:
                shown = ", ".join(map(repr, sorted(names - known)))
                raise ValueError(f"{key}: there is no collector {shown}, expected some of {', '.join(sorted(known))}")
        if requested["collect[]"] and requested["exclude[]"]:
            raise ValueError("collect[] and exclude[]: expected only one of them")
        if requested["collect[]"]:
            return frozenset(requested["collect[]"])
        return frozenset(known - requested["exclude[]"]) if requested["exclude[]"] else None

    def _await_first_samples(self, only: frozenset[str] | None, header: str) -> None:
        """Wait until each collector was attempted once, if the scraper sends its timeout, and no longer than that."""
        if self._sampled or self.collection.released:
            return
        seconds = 0.0
        with contextlib.suppress(ValueError):
            seconds = min(float(header) - SCRAPE_SLACK_SECONDS, SCRAPE_WAIT_SECONDS)
        deadline = time.monotonic() + seconds
        while (waiting := self._waiting(only)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._sampled = not waiting and only is None

    def _waiting(self, only: frozenset[str] | None) -> list[str]:
        statuses = [status for status in self.collection.statuses() if only is None or status.name in only]
        return sorted({status.name for status in statuses if not status.attempted and not status.released})

    def _gzip(self, body: bytes) -> bytes:
        page, compressed = self._compressed
        if page != body:
            deflate = zlib.compressobj(1, wbits=31)
            compressed = deflate.compress(body) + deflate.flush()
            self._compressed = body, compressed
        return compressed

    def _report_web_config(self, families: Families) -> None:
        web_config = self._web_config
        if isinstance(web_config, ReloadingWebConfig):
            web_config.current()  # read again, if it changed
            families.add(metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESSFUL, web_config.is_current, file="web")
            families.add(
                metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS, web_config.last_success, file="web"
            )


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header asks for gzip: named, and not with a weight of zero."""
    return any(name == "gzip" and weight > 0 for name, _, weight in _offers(header))


def prefers_openmetrics(header: str) -> bool:
    """Return whether an Accept header asks for OpenMetrics 1.0.0 at least as much as for the text format 0.0.4."""
    offers = _offers(header)
    openmetrics = max((q for name, v, q in offers if name == OPENMETRICS and v in OPENMETRICS_VERSIONS), default=0.0)
    text = 0.0
    for wanted, versions in _TEXT_FORMATS:  # the most specific name counts
        named = [q for name, version, q in offers if name == wanted and version in versions]
        if named:
            text = max(named)
            break
    return openmetrics > 0 and openmetrics >= text


def _offers(header: str) -> list[tuple[str, str, float]]:
    """Return (name, version, weight) of each part of a header; a malformed weight counts as zero."""
    found = []
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        named = {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in parameters)}
        try:
            weight = float(named.get("q", "1"))
        except ValueError:
            weight = 0.0
        found.append((name, named.get("version", ""), weight if 0 <= weight <= 1 else 0.0))
    return found
