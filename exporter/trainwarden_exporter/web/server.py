"""The HTTP side: no client able to hold a thread for long."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.web.connection import Connection

if TYPE_CHECKING:
    from trainwarden_exporter.web.site import Site

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 400
REQUEST_SECONDS = 30.0


class ExporterServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves a site on (host, port); an empty host means every address, IPv6 and IPv4.

    Raises `OSError` if the address cannot be had. A connection that does not complete a handshake and a request within
    `request_seconds` is closed, so slow clients cannot pile up.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], site: Site, request_seconds: float = REQUEST_SECONDS) -> None:
        self.site = site
        self.request_seconds = request_seconds
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._deadlines: dict[Connection, float] = {}
        self._deadlines_lock = threading.Lock()
        host = address[0]
        self.dual_stack = host == "" and socket.has_dualstack_ipv6()
        if self.dual_stack or ":" in host:
            self.address_family = socket.AF_INET6
        every = "::" if self.dual_stack else "0.0.0.0"  # noqa: S104  # what the user asked for
        super().__init__((host or every, address[1]), socketserver.BaseRequestHandler)

    @property
    def port(self) -> int:
        """The port really bound."""
        return int(self.socket.getsockname()[1])

    @property
    def bound(self) -> str:
        """The address really bound, as `host:port`."""
        host = self.socket.getsockname()[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def server_bind(self) -> None:
        """Bind; where every address is wanted, those of IPv4 too."""
        if self.dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a new connection to a thread of its own, or close it if there are far too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        connection = Connection(self.site, request, self.extend)
        try:
            connection.serve()
        except OSError as error:  # TLS's own too; the next scrape is another one
            log.debug("connection of %s broke: %s", client_address, error)
        except Exception:
            log.exception("connection of %s broke", client_address)
        finally:
            self.shutdown_request(connection.socket)
            with self._deadlines_lock:
                self._deadlines.pop(connection, None)
            self._free.release()

    def extend(self, connection: Connection) -> None:
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
                connection.cut()
