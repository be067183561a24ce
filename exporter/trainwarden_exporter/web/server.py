"""The HTTP side: GET only, every answer from memory, no client able to hold a thread for long."""

from __future__ import annotations

import contextlib
import gzip
import logging
import socket
import socketserver
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.exposition import CONTENT_TYPE
from trainwarden_exporter.web.landing import landing_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.sampling.collection import Collection

log = logging.getLogger(__name__)

MAX_REQUESTS = 40
MAX_CONNECTIONS = 400
REQUEST_SECONDS = 30.0
TEXT = "text/plain; charset=utf-8"


class ExporterServer(ThreadingHTTPServer):
    """Serves one collection on (host, port); an empty host means every address, IPv6 and IPv4.

    Raises `OSError` if the address cannot be had. At most `max_requests` are answered at once, others get 503. A
    connection that does not complete a request within `request_seconds` is closed, so slow clients cannot pile up.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        collection: Collection,
        telemetry_path: str = "/metrics",
        max_requests: int = MAX_REQUESTS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.collection = collection
        self.routes: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]] = {
            "/": lambda: (
                HTTPStatus.OK,
                "text/html; charset=utf-8",
                landing_page(collection.statuses(), telemetry_path),
            ),
            "/-/healthy": lambda: (HTTPStatus.OK, TEXT, b"OK\n"),
            "/-/ready": self._ready,
            telemetry_path: lambda: (HTTPStatus.OK, CONTENT_TYPE, collection.page()),
        }
        self.request_seconds = request_seconds
        self.requests = threading.BoundedSemaphore(max_requests)
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._deadlines: dict[socket.socket, float] = {}
        self._deadlines_lock = threading.Lock()
        host = address[0]
        self.dual_stack = host == "" and socket.has_dualstack_ipv6()
        if self.dual_stack or ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host or ("::" if self.dual_stack else "0.0.0.0"), address[1]), RequestHandler)  # noqa: S104

    @property
    def bound(self) -> str:
        """The address really bound, as `host:port`."""
        host, port = self.socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def server_bind(self) -> None:
        """Bind without the base class's lookup of the host's full name, which may take seconds."""
        if self.dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a new connection to a thread of its own, or close it if there are far too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.extend(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def extend(self, connection: socket.socket) -> None:
        """Give a connection time for one more request."""
        with self._deadlines_lock:
            self._deadlines[connection] = time.monotonic() + self.request_seconds

    def service_actions(self) -> None:
        """Cut the connections that are over their time; called between accepts."""
        now = time.monotonic()
        with self._deadlines_lock:
            late = [connection for connection, deadline in self._deadlines.items() if deadline < now]
        for connection in late:
            with contextlib.suppress(OSError):  # its thread may have closed it meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note a connection that broke; the next scrape is another one."""
        log.debug("connection of %s on %s broke", client_address, request, exc_info=True)  # noqa: LOG014  # called while handling one

    def _forget(self, connection: socket.socket) -> None:
        with self._deadlines_lock:
            self._deadlines.pop(connection, None)
        self._connections.release()

    def _ready(self) -> tuple[HTTPStatus, str, bytes]:
        waiting = [status.name for status in self.collection.statuses() if not status.attempted]
        if waiting:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"waiting for {', '.join(waiting)}\n".encode()
        return HTTPStatus.OK, TEXT, b"OK\n"


class RequestHandler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    server: ExporterServer
    protocol_version = "HTTP/1.1"
    server_version = "trainwarden-exporter"
    sys_version = ""
    wbufsize = -1  # head and body leave in one segment
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Answer a page."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads must not pass for the next request
        if not self.server.requests.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"too many requests at once\n")
            return
        try:
            route = self.server.routes.get(self.path.partition("?")[0])
            self._answer(*(route() if route else (HTTPStatus.NOT_FOUND, TEXT, b"not found\n")))
            self.wfile.flush()
        finally:
            self.server.requests.release()
        self.server.extend(self.connection)

    def refuse(self) -> None:
        """Answer every other method; the connection ends, for a body is not read."""
        self.close_connection = True
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"only GET\n")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = refuse  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Keep the base class's own messages out of the log unless asked for."""
        log.debug("%s: " + format, self.address_string(), *args)  # noqa: G003  # the base class brings the format

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        if self.close_connection:
            self.send_header("Connection", "close")
        if accepts_gzip(self.headers.get("Accept-Encoding", "")):
            body = gzip.compress(body, compresslevel=1, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Vary", "Accept-Encoding")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def accepts_gzip(header: str) -> bool:
    """Tell whether an Accept-Encoding header asks for gzip: named, and not with a weight of zero."""
    for coding in header.lower().split(","):
        name, *parameters = (part.strip() for part in coding.split(";"))
        if name == "gzip":
            return not any(
                parameter.replace(" ", "") in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for parameter in parameters
            )
    return False
