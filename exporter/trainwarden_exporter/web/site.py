"""What is answered to each path: pages out of memory, and who may see them."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from trainwarden_exporter.core.exposition import CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE
from trainwarden_exporter.registry import SPECS
from trainwarden_exporter.web.accept import accepts_gzip, prefers_openmetrics
from trainwarden_exporter.web.access import Open
from trainwarden_exporter.web.request import READING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.sampling.collection import Collection
    from trainwarden_exporter.web.access import Access, Watched
    from trainwarden_exporter.web.request import Request

MAX_REQUESTS = 40
# What a scrape that comes before the first samples leaves of its own deadline, and waits at most.
SCRAPE_SLACK_SECONDS = 0.5
SCRAPE_WAIT_SECONDS = 5.0
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """What is answered, with the headers that belong to it alone."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Answer:
    """Return an answer of one line."""
    return Answer(status, TEXT, f"{text}\n".encode("utf-8", "replace"), headers)


BUSY = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once")


class Site:
    """Every page of one exporter. Who answers and sends one has acquired `requests`, or sends `BUSY`."""

    def __init__(
        self,
        collection: Collection,
        telemetry_path: str = "/metrics",
        max_requests: int = MAX_REQUESTS,
        access: Open | Watched | None = None,
    ) -> None:
        self.collection = collection
        collection.also.append((access or Open()).families)
        self.telemetry_path = telemetry_path
        self.off: Callable[[], str] = str  # what does not run here, and why
        self._access = access or Open()
        self.requests = threading.BoundedSemaphore(max_requests)
        self._sampled = False
        # The last page of metrics and its compressed form, replaced together.
        self._compressed: tuple[bytes, bytes] = (b"", b"")

    def access(self) -> Access:
        """Return who may read now, and over what."""
        return self._access.current()

    def answer(self, request: Request) -> Answer:
        """Answer a request, compressed where the client takes it."""
        access = self.access()
        if access.limit is not None and not access.limit.admits():
            return plain(HTTPStatus.TOO_MANY_REQUESTS, "too many requests")
        headers = tuple(access.headers.items())
        if access.users is not None and not access.users.admit(request.headers.get("authorization", "")):
            asks = ("WWW-Authenticate", 'Basic realm="trainwarden-exporter", charset="UTF-8"')
            return plain(HTTPStatus.UNAUTHORIZED, "unauthorized", asks, *headers)
        if request.method not in READING:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", ("Allow", ", ".join(READING)), *headers)
        answer = self._page(request)
        body = answer.body
        encoding: tuple[tuple[str, str], ...] = ()
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            body, encoding = self._gzip(body), (("Content-Encoding", "gzip"),)
        return Answer(
            answer.status,
            answer.content_type,
            body,
            (*answer.headers, *encoding, ("Vary", "Accept, Accept-Encoding"), *headers),
        )

    def _page(self, request: Request) -> Answer:
        path = request.path
        if path == self.telemetry_path:
            return self._metrics(request)
        if path == "/":
            from trainwarden_exporter.web.landing import landing_page  # noqa: PLC0415  # large; few ever look at it

            statuses, released = self.collection.statuses(), self.collection.released
            page = landing_page(statuses, self.telemetry_path, released, self.off())
            return Answer(HTTPStatus.OK, HTML, page)
        if path == "/-/healthy":
            return plain(HTTPStatus.OK, "OK")
        if path == "/-/ready":
            waiting = self._waiting(None)
            if waiting:
                return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"waiting for {', '.join(waiting)}")
            return plain(HTTPStatus.OK, "OK")
        return plain(HTTPStatus.NOT_FOUND, "not found")

    def _metrics(self, request: Request) -> Answer:
        try:
            only = self._asked_for(request)
        except ValueError as error:
            return plain(HTTPStatus.BAD_REQUEST, str(error))
        self._await_first_samples(only, request.headers.get("x-prometheus-scrape-timeout-seconds", ""))
        openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        page = self.collection.page(only, openmetrics=openmetrics)
        return Answer(HTTPStatus.OK, OPENMETRICS_CONTENT_TYPE if openmetrics else CONTENT_TYPE, page)

    def _asked_for(self, request: Request) -> frozenset[str] | None:
        """Return the collectors that the query asks for; None for all. One that runs elsewhere has nothing here."""
        query = request.query()
        # A collector may be named as its flag is: gpu-jobs.
        asked = {
            key: {value.replace("-", "_") for name, value in query if name == key} for key in ("collect[]", "exclude[]")
        }
        known = {spec.name for spec in SPECS} | set(self.collection.names)
        for key, names in asked.items():
            if not names <= known:
                shown = ", ".join(map(repr, sorted(names - known)))
                raise ValueError(f"{key}: there is no collector {shown}, expected some of {', '.join(sorted(known))}")
        if asked["collect[]"] and asked["exclude[]"]:
            raise ValueError("collect[] and exclude[]: expected only one of them")
        if asked["collect[]"]:
            return frozenset(asked["collect[]"])
        return frozenset(known - asked["exclude[]"]) if asked["exclude[]"] else None

    def _await_first_samples(self, only: frozenset[str] | None, header: str) -> None:
        """Wait, where the scraper says how long it waits itself, until each collector has been attempted once."""
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
