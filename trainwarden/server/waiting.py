"""The connections whose clients have yet to send something: accepted, received from and closed in one thread."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from trainwarden.server.address import shown_address
from trainwarden.server.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden.server.server import HttpServer

log = logging.getLogger(__name__)

# So many at a time, so that a crowd of new clients does not delay those that are there.
_ACCEPTED_AT_ONCE = 16
# Without a file descriptor to spare, `accept` fails at once, again and again.
_ACCEPT_RETRY_SECONDS = 0.2
_EVENTS = {"read": selectors.EVENT_READ, "write": selectors.EVENT_WRITE}
# One client has as many IPv6 addresses as it likes, of one network of this length.
_IPV6_NETWORK_BITS = 64


class WaitingConnections:
    """Accepts connections, takes handshakes and heads as they arrive, and passes on those with a whole head.

    Idle clients cost memory alone, and that is bounded: of a head no more than its limit is kept, and where there are
    as many connections as there may be, a new one costs another its place: one of the client that has most, rather one
    that was not yet answered with what it asked for, and of those the one that has waited longest.

    Args:
        server: whose connections they are.
        listeners: the sockets that listen.
        limit: of connections, those that are being answered included.
        answer: called with a connection whose request is complete, which comes back by `add` or ends with `forget`.
    """

    def __init__(
        self,
        server: HttpServer,
        listeners: Sequence[socket.socket],
        limit: int,
        answer: Callable[[Connection], None],
    ) -> None:
        self._server = server
        self._listeners = listeners
        self._limit = limit
        self._answer = answer
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._waiting: set[Connection] = set()
        self._returned: deque[Connection] = deque()
        self._lock = threading.Lock()  # guards the next, and the wake-up socket against its end
        self._clients: Counter[str] = Counter()
        self._is_ended = False
        self._next_deadline = float("inf")

    def run(self) -> None:
        """Do this until the server is stopping; then close all that wait."""
        for each in (*self._listeners, self._woken):
            self._selector.register(each, selectors.EVENT_READ)
        while not self._server.is_stopping:
            timeout = None if self._next_deadline == float("inf") else max(0.0, self._next_deadline - time.monotonic())
            for key, _ in self._selector.select(timeout):
                if isinstance(key.data, Connection):
                    self._receive(key.data)
                elif key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj)
            while self._returned:
                self._wait_for(self._returned.popleft())
            if time.monotonic() >= self._next_deadline:
                self._end_late()

    def stop(self) -> None:
        """Wake `run` up, so that it sees that the server is stopping."""
        with self._lock:
            self._wake_up()

    def close(self) -> None:
        """Close what waits, once `run` has ended."""
        with self._lock:
            self._is_ended = True
        for connection in (*self._waiting, *self._returned):
            self._end(connection)
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def add(self, connection: Connection) -> None:
        """Wait for the next request of a connection that was answered; in the thread that answered it."""
        with self._lock:
            if not self._is_ended:
                self._returned.append(connection)
                self._wake_up()
                return
        self._end(connection)

    def forget(self, connection: Connection) -> None:
        """Close a connection that was passed on, and count it no longer; in the thread that answered it."""
        connection.close()
        with self._lock:
            self._clients[connection.client] -= 1
            if not self._clients[connection.client]:
                del self._clients[connection.client]

    def _wake_up(self) -> None:
        if not self._is_ended:
            with contextlib.suppress(BlockingIOError):  # it is full: it wakes up anyway
                self._wake.send(b"x")

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:  # no more of them, or the client has gone
                return
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                time.sleep(_ACCEPT_RETRY_SECONDS)
                return
            if self._clients.total() >= self._limit and not self._make_room():
                accepted.close()
                continue
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = shown_address(*address[:2]) if isinstance(address, tuple) else ""
            connection = Connection(self._server, accepted, client_of(accepted.family, address), peer)
            with self._lock:
                self._clients[connection.client] += 1
            connection.begin(self._server.web_config)
            self._wait_for(connection)

    def _make_room(self) -> bool:
        """End the connection that is the least loss; False if all are being answered."""
        if not self._waiting:
            return False
        counts = self._clients
        self._end(min(self._waiting, key=lambda one: (-counts[one.client], one.is_welcome, one.waiting_since or 0.0)))
        return True

    def _wait_for(self, connection: Connection) -> None:
        """Take what has arrived already, and wait for the rest."""
        self._waiting.add(connection)
        self._selector.register(connection.fileno, selectors.EVENT_READ, connection)
        self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        if connection not in self._waiting:
            return  # ended for another since the selector named it
        try:
            needed = connection.receive()
        except OSError as error:  # the client may come again
            log.debug("a connection broke: %s", error)
            needed = ""
        except Exception:
            log.exception("a connection broke")
            needed = ""
        if needed not in _EVENTS:
            if needed == "answer":
                self._drop(connection)
                self._answer(connection)
            else:
                self._end(connection)
            return
        if self._selector.get_key(connection.fileno).events != _EVENTS[needed]:
            self._selector.modify(connection.fileno, _EVENTS[needed], connection)
        self._next_deadline = min(self._next_deadline, connection.deadline)

    def _end_late(self) -> None:
        now = time.monotonic()
        for connection in [one for one in self._waiting if one.deadline <= now]:
            self._end(connection)
        self._next_deadline = min((one.deadline for one in self._waiting), default=float("inf"))

    def _drop(self, connection: Connection) -> None:
        self._waiting.discard(connection)
        with contextlib.suppress(KeyError):  # it has just come back
            self._selector.unregister(connection.fileno)

    def _end(self, connection: Connection) -> None:
        self._drop(connection)
        self.forget(connection)


def client_of(family: int, address: object) -> str:
    """Return what the connections of a client are counted by: its IPv4 address, or the network of its IPv6 one."""
    if family == socket.AF_UNIX or not isinstance(address, tuple):
        return ""
    host = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is not None:
            return str(host.ipv4_mapped)
        return str(ipaddress.ip_network((int(host), _IPV6_NETWORK_BITS), strict=False))
    return str(host)
