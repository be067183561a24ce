"""An HTTP server with limits on connections, requests, sizes and times, so that no client holds it up."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from trainwarden.server.address import shown_address
from trainwarden.server.connection import Connection
from trainwarden.server.messages import BadRequest, Request, Response, plain
from trainwarden.server.web_config import NoWebConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from types import TracebackType

    from trainwarden.server.basic_auth import BasicAuthUsers
    from trainwarden.server.web_config import WebConfig

log = logging.getLogger(__name__)

_BACKLOG = 128
# A response that takes longer to send is given up where another request needs its slot.
_STALLED_SECONDS = 1.0
# Without a file descriptor to spare, `accept` fails at once, again and again.
_ACCEPT_RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class Limits:
    """What clients may take; times are in seconds.

    Attributes:
        connections: at a time; one more costs the longest idle one its place, or is closed.
        requests: answered at the same time; one more gets 503.
        head_bytes: of a request's line and headers together.
        head_seconds: for the first byte, for a TLS handshake, and for a head from its first byte on.
        body_seconds: for a body.
        send_seconds: for a whole response.
        idle_seconds: between a response and the first byte of the next request.
    """

    connections: int = 400
    requests: int = 40
    head_bytes: int = 32768
    head_seconds: float = 30.0
    body_seconds: float = 10.0
    send_seconds: float = 30.0
    idle_seconds: float = 120.0


class HttpServer:
    """Listens on addresses, and answers with what `handler` returns for a request.

    Args:
        addresses: pairs of host and port; an empty host is every address, IPv6 and IPv4, port 0 a free one.
        handler: returns the response to a request; may raise `BadRequest`. Called from many threads at once.
        name: for the header `Server` and the realm of basic authentication.
        web_config: TLS, users, headers and rate limit.
        own_authentication: paths whose handler asks for credentials of its own; they ask for no user.

    Attributes:
        bound: the addresses bound, each as `host:port`.
        port: the port bound, of several addresses that of the first.

    Raises:
        OSError: an address cannot be bound; its `filename` names it.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        handler: Callable[[Request], Response],
        *,
        name: str = "trainwarden",
        web_config: WebConfig | None = None,
        limits: Limits | None = None,
        own_authentication: Container[str] = frozenset(),
    ) -> None:
        self.name = name
        self.web_config = web_config or NoWebConfig()
        self.limits = limits or Limits()
        self.is_stopping = False
        self._handler = handler
        self._own_authentication = own_authentication
        self._changed = threading.Condition()  # guards the two sets; notified when either loses a connection
        self._connections: set[Connection] = set()
        self._slots: set[Connection] = set()
        self._thread: threading.Thread | None = None
        self._wake, self._woken = socket.socketpair()
        self._listeners: list[socket.socket] = []
        try:
            for address in addresses:
                self._listeners.append(_listener(*address))
        except BaseException:
            self._close_sockets()
            raise
        names = [listener.getsockname()[:2] for listener in self._listeners]
        self.bound = [shown_address(*name) for name in names]
        self.port = int(names[0][1])

    def start(self) -> None:
        """Accept connections in a thread until `stop`."""
        self._thread = threading.Thread(target=self._accept_connections, name="http", daemon=True)
        self._thread.start()

    def stop(self, grace_seconds: float = 2.0) -> None:
        """Stop listening; responses under way have `grace_seconds`, then all connections are cut."""
        self.is_stopping = True
        with contextlib.suppress(OSError):  # closed by an earlier call
            self._wake.send(b"x")
        if self._thread is not None:
            self._thread.join()
        self._close_sockets()
        with self._changed:
            for connection in self._connections:
                if connection.idle_since is not None:
                    _cut(connection)
            self._changed.wait_for(lambda: not self._connections, grace_seconds)
            for connection in self._connections:
                _cut(connection)

    def __enter__(self) -> HttpServer:
        """Return the server; leaving stops it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def respond(self, request: Request) -> Response:
        """Return the response to a request, as the web configuration allows it."""
        access = self.web_config.current()
        response = self._respond(request, access.rate_limit is None or access.rate_limit.admits(), access.users)
        if not access.headers:
            return response
        headers = (*response.headers, *access.headers.items())
        return Response(response.status, response.content_type, response.body, headers)

    def acquire_slot(self, connection: Connection) -> bool:
        """Take one of the places of requests under way; False if all are taken.

        Clients that ask and never read hold theirs until `send_seconds` are over. So where all are taken, the one that
        has been sending longest, over a second, is cut.
        """
        with self._changed:
            if len(self._slots) >= self.limits.requests:
                sending = [(each.sending_since, each) for each in self._slots if each.sending_since is not None]
                since, slowest = min(sending, key=lambda pair: pair[0], default=(0.0, None))
                if slowest is None or time.monotonic() - since < _STALLED_SECONDS:
                    return False
                _cut(slowest)
                if not self._changed.wait_for(lambda: len(self._slots) < self.limits.requests, _STALLED_SECONDS):
                    return False
            self._slots.add(connection)
            return True

    def release_slot(self, connection: Connection) -> None:
        """Give back what `acquire_slot` took."""
        with self._changed:
            self._slots.discard(connection)
            self._changed.notify_all()

    def _respond(self, request: Request, admitted: bool, users: BasicAuthUsers | None) -> Response:
        if not admitted:
            return plain(HTTPStatus.TOO_MANY_REQUESTS, "too many requests")
        asks_for_user = users is not None and request.path not in self._own_authentication
        if users is not None and asks_for_user and not users.admit(request.headers.get("authorization", "")):
            challenge = ("WWW-Authenticate", f'Basic realm="{self.name}", charset="UTF-8"')
            return plain(HTTPStatus.UNAUTHORIZED, "unauthorized", challenge)
        try:
            return self._handler(request)
        except BadRequest as error:
            return plain(error.status, str(error))
        except Exception:  # the next request may be answered
            log.exception("no response to %s", request.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "no response, see the log")

    def _accept_connections(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in (*self._listeners, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while not self.is_stopping:
                for key, _ in selector.select():
                    if key.fileobj is not self._woken and isinstance(key.fileobj, socket.socket):
                        self._accept(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except BlockingIOError:  # the client has gone
            return
        except OSError as error:
            log.warning("a connection could not be accepted: %s", error)
            time.sleep(_ACCEPT_RETRY_SECONDS)
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, accepted)
        with self._changed:
            if len(self._connections) >= self.limits.connections and not self._cut_idle():
                accepted.close()
                return
            self._connections.add(connection)
        try:
            threading.Thread(target=self._serve, args=(connection,), name="http-connection", daemon=True).start()
        except RuntimeError as error:  # no thread to be had
            log.warning("a connection could not be served: %s", error)
            self._end(connection)

    def _cut_idle(self) -> bool:
        """Cut the connection that has been idle longest, and wait for its end; False if all are at work."""
        idle = [(each.idle_since, each) for each in self._connections if each.idle_since is not None]
        if not idle:
            return False
        _cut(min(idle, key=lambda pair: pair[0])[1])
        return self._changed.wait_for(lambda: len(self._connections) < self.limits.connections, _STALLED_SECONDS)

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        except OSError as error:  # TimeoutError and those of TLS too; the client may come again
            log.debug("a connection broke: %s", error)
        except Exception:
            log.exception("a connection broke")
        finally:
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        connection.close()
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def _close_sockets(self) -> None:
        for each in (*self._listeners, self._wake, self._woken):
            each.close()


def _listener(host: str, port: int) -> socket.socket:
    every = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ":" in host or (not host and every) else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not host and every:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except BaseException as error:
        made.close()
        if not isinstance(error, OSError):
            raise  # OverflowError for a port that is none
        raise OSError(error.errno, error.strerror, shown_address(host, port)) from error
    return made


def _cut(connection: Connection) -> None:
    with contextlib.suppress(OSError):  # its thread may have closed it meanwhile
        connection.cut()
