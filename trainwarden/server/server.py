"""An HTTP server with limits on connections, requests, sizes and times, so that no client holds it up."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import threading
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

from trainwarden.server.address import shown_address
from trainwarden.server.guesses import TooManyGuesses
from trainwarden.server.limits import Limits
from trainwarden.server.messages import BadRequest, Request, Response, plain
from trainwarden.server.waiting import WaitingConnections
from trainwarden.server.web_config import NoWebConfig
from trainwarden.server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from types import TracebackType

    from trainwarden.server.connection import Connection
    from trainwarden.server.web_config import WebAccess, WebConfig

log = logging.getLogger(__name__)

_BACKLOG = 1024
# A response that takes longer to send is given up where another request needs its slot.
_STALLED_SECONDS = 1.0
# One of so many places is kept for connections on which responses were read.
_KEPT_PLACES = 4
# A password's check takes a tenth of a second, and more where the processor is busy.
_HASH_SECONDS = 5.0


class HttpServer:
    """Listens on addresses, and answers with what `handler` returns for a request.

    Args:
        addresses: pairs of host and port; an empty host is every address, IPv6 and IPv4, port 0 a free one. In place of
            a pair a socket that listens already; it is closed with the server.
        handler: returns the response to a request; may raise `BadRequest`. Called from many threads at once.
        name: for the header `Server` and the realm of basic authentication.
        web_config: TLS, users, headers and rate limit.
        own_authentication: paths whose handler asks for credentials of its own; they ask for no user.

    Attributes:
        bound: the addresses bound, each as `host:port`; of a socket in the file system `unix:PATH`.
        port: the port bound, of several addresses that of the first; 0 for a socket in the file system.

    Raises:
        OSError: an address cannot be bound; its `filename` names it.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int] | socket.socket],
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
        self._answered: set[Connection] = set()
        self._slots: set[Connection] = set()
        self._sending: dict[Connection, int] = {}  # bytes of the responses, in the order of their beginnings
        self._draining: dict[Connection, None] = {}  # in the order of their responses
        self._awaited = 0  # requests that wait for a slot, which is not given to others meanwhile
        self._thread: threading.Thread | None = None
        self._workers = Workers("http-request")
        self._listeners: list[socket.socket] = []
        try:
            for address in addresses:
                self._listeners.append(address if isinstance(address, socket.socket) else _listener(*address))
        except BaseException:
            self._close_listeners()
            raise
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        limit = min(self.limits.connections, descriptors) if descriptors > 0 else self.limits.connections
        self._waiting = WaitingConnections(self, self._listeners, limit, self._begin_answer)
        self.bound = [_shown(listener) for listener in self._listeners]
        first = self._listeners[0].getsockname()
        self.port = int(first[1]) if isinstance(first, tuple) else 0

    def start(self) -> None:
        """Accept connections in a thread until `stop`."""
        self._thread = threading.Thread(target=self._waiting.run, name="http", daemon=True)
        self._thread.start()

    def answer_here(self, seconds: float) -> None:
        """Answer a request in the calling thread, if one comes within so many seconds and no other thread is free."""
        self._workers.work_here(seconds)

    def stop(self, grace_seconds: float = 2.0) -> None:
        """Stop listening; responses under way have `grace_seconds`, then all connections are cut."""
        self.is_stopping = True
        self._waiting.stop()
        if self._thread is not None:
            self._thread.join()
        self._close_listeners()
        self._waiting.close()
        self._workers.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._answered, grace_seconds)
            for connection in self._answered:
                _cut(connection)
        if (users := self.web_config.current().users) is not None:
            users.close(_HASH_SECONDS)

    def __enter__(self) -> HttpServer:
        """Return the server; leaving stops it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def respond(self, request: Request, connection: Connection) -> Response:
        """Return the response to a request, as the web configuration allows it.

        Only one that may be answered takes a slot, which is the connection's until `release_slot`: a client
        without a password takes none from others.
        """
        access = self.web_config.current()
        response = self._refusal(request, access, connection.client)
        if response is None and not self._acquire_slot(connection):
            response = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once")
        if response is None:
            response = self._handle(request)
        if not access.headers:
            return response
        headers = (*response.headers, *access.headers.items())
        return Response(response.status, response.content_type, response.body, headers)

    def begin_sending(self, connection: Connection, size: int) -> None:
        """Note a response that is about to be sent; cut others that are being sent where all are too large together.

        Those of the client that has most of them go first, and of these the one that has been sending longest: memory
        is not for who asks and does not read.
        """
        with self._changed:
            others, self._sending[connection] = list(self._sending), size
            clients = Counter(each.client for each in self._sending)
            while others and sum(self._sending.values()) > self.limits.sending_bytes:
                crowded = max(others, key=lambda each: clients[each.client])
                others.remove(crowded)
                clients[crowded.client] -= 1
                del self._sending[crowded]
                _cut(crowded)

    def begin_draining(self, connection: Connection) -> None:
        """Note a connection that has been answered, and of which only an unread body is still awaited."""
        with self._changed:
            self._draining[connection] = None

    def cut_draining(self) -> bool:
        """Cut one connection that has been answered, for a new one; False if there is none.

        One of the client that has most of them, and of these the one that was answered first.
        """
        with self._changed:
            if not self._draining:
                return False
            [(crowd, _)] = Counter(each.client for each in self._draining).most_common(1)
            cut = next(each for each in self._draining if each.client == crowd)
            del self._draining[cut]
            _cut(cut)
            return True

    def release_slot(self, connection: Connection) -> None:
        """Give back the slot of a connection that has been answered, if it has one."""
        with self._changed:
            self._sending.pop(connection, None)
            if connection in self._slots:
                self._slots.discard(connection)
                self._changed.notify_all()

    def _acquire_slot(self, connection: Connection) -> bool:
        """Take one of the places of requests under way; False if all are taken.

        Clients that ask and never read hold theirs until `send_seconds` are over. So where all are taken, the one that
        has been sending longest is cut: over a second, or for a client that has no place, of the one that has most. A
        connection that `is_welcome` waits for that, and has places that no other takes; any other is refused.
        """
        with self._changed:
            places = self.limits.requests
            if not connection.is_welcome:
                places -= places // _KEPT_PLACES
            if len(self._slots) + self._awaited < places:
                self._slots.add(connection)
                return True
            deadline = time.monotonic() + 4 * _STALLED_SECONDS
            self._awaited += 1
            try:
                while len(self._slots) >= places:
                    if (slowest := self._slowest(connection)) is not None:
                        _cut(slowest)
                    elif not connection.is_welcome:
                        return False
                    if time.monotonic() >= deadline:
                        return False
                    self._changed.wait(_STALLED_SECONDS / 4)
            finally:
                self._awaited -= 1
            self._slots.add(connection)
            return True

    def _slowest(self, connection: Connection) -> Connection | None:
        """Return the connection that may lose its slot to another, which has been sending longest."""
        times = [(each.sending_since, each.fileno, each) for each in self._slots]
        sending = sorted((since, number, each) for since, number, each in times if since is not None)
        if sending and time.monotonic() - sending[0][0] >= _STALLED_SECONDS:
            return sending[0][2]
        clients = Counter(each.client for each in self._slots)
        crowd, places = clients.most_common(1)[0]
        if clients[connection.client] or places < 2:
            return None
        return next((each for _, _, each in sending if each.client == crowd), None)

    def _refusal(self, request: Request, access: WebAccess, client: str) -> Response | None:
        """Return the response to a request that may not be answered; None for one that may."""
        if access.rate_limit is not None and not access.rate_limit.admits():
            return plain(HTTPStatus.TOO_MANY_REQUESTS, "too many requests")
        if access.users is None or request.path in self._own_authentication:
            return None
        try:
            if access.users.admit(request.headers.get("authorization", ""), client):
                return None
        except TooManyGuesses as error:
            return plain(HTTPStatus.TOO_MANY_REQUESTS, str(error), ("Retry-After", "10"))
        challenge = ("WWW-Authenticate", f'Basic realm="{self.name}", charset="UTF-8"')
        return plain(HTTPStatus.UNAUTHORIZED, "unauthorized", challenge)

    def _handle(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except BadRequest as error:
            return plain(error.status, str(error))
        except Exception:  # the next request may be answered
            log.exception("no response to %s", request.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "no response, see the log")

    def _begin_answer(self, connection: Connection) -> None:
        with self._changed:
            self._answered.add(connection)
        try:
            self._workers.run(lambda: self._answer(connection))
        except RuntimeError as error:  # no thread to be had
            log.warning("a request could not be answered: %s", error)
            self._end_answer(connection, stays=False)

    def _answer(self, connection: Connection) -> None:
        stays = False
        try:
            stays = connection.answer()
        except OSError as error:  # TimeoutError and those of TLS too; the client may come again
            log.debug("a connection broke: %s", error)
        except Exception:
            log.exception("a connection broke")
        finally:
            self._end_answer(connection, stays=stays)

    def _end_answer(self, connection: Connection, *, stays: bool) -> None:
        with self._changed:
            self._answered.discard(connection)
            self._draining.pop(connection, None)
            self._changed.notify_all()
        if stays:
            self._waiting.add(connection)
        else:
            self._waiting.forget(connection)

    def _close_listeners(self) -> None:
        for each in self._listeners:
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


def _shown(listener: socket.socket) -> str:
    name = listener.getsockname()
    return shown_address(*name[:2]) if isinstance(name, tuple) else f"unix:{name}"


def _cut(connection: Connection) -> None:
    with contextlib.suppress(OSError):  # its thread may have closed it meanwhile
        connection.cut()
