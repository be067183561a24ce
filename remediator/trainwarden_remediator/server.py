"""HTTP: take webhooks, show incidents and metrics. A request never does more than one transaction."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from trainwarden_remediator.clock import Clock
from trainwarden_remediator.incident import as_json
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.receive import MAX_BODY_BYTES, BadBody, read_delivery
from trainwarden_remediator.store import Store

log = logging.getLogger(__name__)

WEBHOOK = "/alertmanager/webhook"
_CONNECTION_SECONDS = 10.0
_MAX_CONNECTIONS = 256
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


@dataclass(frozen=True)
class Service:
    """What the handlers need. `received` is called after a webhook is durable; `ready` tells whether the loop turns."""

    store: Store
    metrics: Metrics
    registry: CollectorRegistry
    clock: Clock
    token: str
    received: Callable[[], None]
    ready: Callable[[], bool]


class Server(ThreadingHTTPServer):
    """One thread per connection, one request per connection, a deadline for each, and a limit on how many there are."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], service: Service, connection_seconds: float = _CONNECTION_SECONDS
    ) -> None:
        """Bind. Raises OSError."""
        self.service = service
        self._seconds = connection_seconds
        self._connections: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without asking the resolver for our own name, which can take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002  # the base class's signature
        """Refuse what is too much to serve."""
        with self._lock:
            if len(self._connections) >= _MAX_CONNECTIONS:
                return False
            self._connections[request] = time.monotonic() + self._seconds
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and forget it."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections that are over their time, however busily they trickle."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, end in self._connections.items() if now > end]
        for connection in late:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # the base class's signature
        """A broken connection is the peer's business; anything else is logged."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("a request of %s failed", client_address, exc_info=error)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = _CONNECTION_SECONDS
    server_version = "trainwarden-remediator"
    sys_version = ""

    def do_GET(self) -> None:
        """Metrics, health, incidents."""
        url = urlsplit(self.path)
        if url.path == "/-/healthy":
            self._text(HTTPStatus.OK, "OK")
        elif url.path == "/-/ready":
            ready = self.server.service.ready()
            self._text(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, "OK" if ready else "not ready")
        elif url.path == "/metrics":
            self._from_database(lambda: (CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.server.service.registry)))
        elif url.path == "/api/v1/incidents":
            self._incidents(url.query)
        elif url.path == WEBHOOK:
            self._text(HTTPStatus.METHOD_NOT_ALLOWED, "use POST")
        else:
            self._text(HTTPStatus.NOT_FOUND, "not found")

    def do_POST(self) -> None:
        """The webhook."""
        if urlsplit(self.path).path != WEBHOOK:
            self._text(HTTPStatus.NOT_FOUND, "not found")
            return
        status, reason = self._receive()
        self.server.service.metrics.received(status, self.server.service.clock.now())
        if status != HTTPStatus.OK:
            log.warning("webhook answered %d: %s", status, reason)
        self._text(HTTPStatus(status), reason)

    def _receive(self) -> tuple[int, str]:
        if not self._authorised():
            return HTTPStatus.UNAUTHORIZED, "a bearer token is needed"
        try:
            delivery = read_delivery(self._body())
        except BadBody as error:
            return error.status, str(error)
        except OSError:
            return HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time"
        service = self.server.service
        try:
            service.store.receive(delivery)
        except SQLAlchemyError:
            log.exception("the alerts could not be stored")
            return HTTPStatus.SERVICE_UNAVAILABLE, "the alerts could not be stored; send them again"
        if delivery.truncated:
            log.warning("%d alerts were cut off by max_alerts; asking Alertmanager for them", delivery.truncated)
        service.received()
        return HTTPStatus.OK, "OK"

    def _body(self) -> bytes:
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise BadBody(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise BadBody(HTTPStatus.LENGTH_REQUIRED, "Content-Length is needed")
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:
            raise BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise BadBody(HTTPStatus.BAD_REQUEST, "the body ended early")
        return body

    def _incidents(self, query: str) -> None:
        if not self._authorised():
            self._text(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
            return
        run_id = parse_qs(query).get("run_id", [None])[-1]
        self._from_database(lambda: (_JSON, self._incidents_page(run_id)))

    def _incidents_page(self, run_id: str | None) -> bytes:
        found = self.server.service.store.with_events(run_id)
        return json.dumps([as_json(incident, events) for incident, events in found]).encode()

    def _from_database(self, page: Callable[[], tuple[str, bytes]]) -> None:
        try:
            content_type, body = page()
        except SQLAlchemyError:
            log.exception("%s could not be answered", urlsplit(self.path).path)
            self._text(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer")
            return
        self._answer(HTTPStatus.OK, content_type, body)

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(given, f"Bearer {self.server.service.token}".encode())

    def _text(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, _TEXT, f"{text}\n".encode("utf-8", "replace"))

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Requests are counted, not logged."""
