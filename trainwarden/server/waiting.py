"""The connections whose clients have yet to send something: accepted, received from and closed in one thread."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from trainwarden.server.address import shown_address
from trainwarden.server.connection import ConnectedServer, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

log = logging.getLogger(__name__)

# So many at a time, so that a crowd of new clients does not delay those that are there.
_ACCEPTED_AT_ONCE = 16
# Of clients that have not read a response, so that a crowd of them holds up no scraper.
_SERVED_AT_ONCE = 16
# So long no more are accepted after so many that cost others their place: the processor is needed for those that ask.
_CROWDED_SECONDS = 0.04
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
        server: ConnectedServer,
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
        # By client and `is_welcome`; each in the order in which they began to wait.
        self._waiting: dict[tuple[str, bool], dict[Connection, None]] = {}
        self._returned: deque[Connection] = deque()
        self._lock = threading.Lock()  # guards the next, and the wake-up socket against its end
        self._clients: Counter[str] = Counter()
        self._is_ended = False
        self._next_deadline = float("inf")
        self._accepts_from = 0.0  # until then it does not listen

    def run(self) -> None:
        """Do this until the server is stopping; then close all that wait."""
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listen()
        while not self._server.is_stopping:
            for key in self._in_turn(self._selector.select(self._timeout())):
                if isinstance(key.data, Connection):
                    self._receive(key.data)
                elif key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj)
            while self._returned:
                self._wait_for(self._returned.popleft())
            now = time.monotonic()
            if now >= self._next_deadline:
                self._end_late(now)
            if self._accepts_from and now >= self._accepts_from:
                self._listen()

    def stop(self) -> None:
        """Wake `run` up, so that it sees that the server is stopping."""
        with self._lock:
            self._wake_up()

    def close(self) -> None:
        """Close what waits, once `run` has ended."""
        with self._lock:
            self._is_ended = True
        for connection in [*self._all(), *self._returned]:
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

    def _in_turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> list[selectors.SelectorKey]:
        """Return who is served in this round: all that are welcome, then some of the others, which come again."""
        keys = [key for key, _ in ready]
        crowd = [key for key in keys if isinstance(key.data, Connection) and not key.data.is_welcome]
        first = [key for key in keys if not isinstance(key.data, Connection) or key.data.is_welcome]
        return [*first, *crowd[:_SERVED_AT_ONCE]]

    def _wake_up(self) -> None:
        if not self._is_ended:
            with contextlib.suppress(BlockingIOError):  # it is full: it wakes up anyway
                self._wake.send(b"x")

    def _timeout(self) -> float | None:
        until = min(self._next_deadline, self._accepts_from or float("inf"))
        return None if until == float("inf") else max(0.0, until - time.monotonic())

    def _listen(self) -> None:
        self._accepts_from = 0.0
        for each in self._listeners:
            self._selector.register(each, selectors.EVENT_READ)

    def _pause_listening(self) -> None:
        self._accepts_from = time.monotonic() + _CROWDED_SECONDS
        for each in self._listeners:
            self._selector.unregister(each)

    def _accept(self, listener: socket.socket) -> None:
        for number in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:  # no more of them, or the client has gone
                return
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                time.sleep(_ACCEPT_RETRY_SECONDS)
                return
            if self._clients.total() >= self._limit:
                if number == _ACCEPTED_AT_ONCE - 1 and not self._accepts_from:
                    self._pause_listening()
                if not self._make_room():
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
        """End the connection that is the least loss; False if all are being answered.

        Where none waits, one that has been answered already, of which only an unread body is still awaited. It ends in
        its own thread: until then there is one more than the limit.
        """
        for client, _ in self._clients.most_common():
            for is_welcome in (False, True):
                if waiting := self._waiting.get((client, is_welcome)):
                    self._end(next(iter(waiting)))
                    return True
        return self._server.cut_draining()

    def _all(self) -> Iterator[Connection]:
        return itertools.chain.from_iterable(self._waiting.values())

    def _wait_for(self, connection: Connection) -> None:
        """Take what has arrived already, and wait for the rest."""
        self._waiting.setdefault((connection.client, connection.is_welcome), {})[connection] = None
        self._selector.register(connection.fileno, selectors.EVENT_READ, connection)
        self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        if connection not in self._waiting.get((connection.client, connection.is_welcome), ()):
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

    def _end_late(self, now: float) -> None:
        for connection in [one for one in self._all() if one.deadline <= now]:
            self._end(connection)
        self._next_deadline = min((one.deadline for one in self._all()), default=float("inf"))

    def _drop(self, connection: Connection) -> None:
        key = connection.client, connection.is_welcome
        waiting = self._waiting.get(key, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(key, None)
        with contextlib.suppress(KeyError):  # it has just come back
            self._selector.unregister(connection.fileno)

    def _end(self, connection: Connection) -> None:
        self._drop(connection)
        self.forget(connection)


def client_of(family: int, address: object) -> str:
    """Return what the connections of a client are counted by: its IPv4 address, or the network of its IPv6 one."""
    if family == socket.AF_UNIX or not isinstance(address, tuple):
        return ""
    return _network_of(str(address[0]))


@functools.lru_cache(maxsize=256)
def _network_of(text: str) -> str:
    host = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is not None:
            return str(host.ipv4_mapped)
        return str(ipaddress.ip_network((int(host), _IPV6_NETWORK_BITS), strict=False))
    return str(host)
