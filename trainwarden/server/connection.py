"""One client's connection: TLS where it is configured, then requests one after the other, each with deadlines.

What a client may hold back, its handshake and the heads of its requests, is taken as it arrives, without waiting: idle
and slow clients cost no thread. A request whose head is complete is answered in a thread of its own, once the client
has taken the response before it: a client that asks in a row and never reads gets one.

h11 parses: it decides what is a request, where a body ends, and whether the connection may go on. The head of a
response is written here, because each body is complete and its length known; h11's own writer would take 60 µs more of
a scrape. To parse takes h11 80 µs, so the request of a scraper, the same bytes each time, is parsed once.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import socket
import struct
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import h11

from trainwarden.server.messages import BadRequest, Request, Response, plain

if TYPE_CHECKING:
    from trainwarden.server.limits import Limits
    from trainwarden.server.tls import Tls
    from trainwarden.server.web_config import WebConfig

log = logging.getLogger(__name__)

TLS_HANDSHAKE = b"\x16"
_RECEIVE_BYTES = 16384
_REMEMBERED_BYTES = 4096
# As h11 finds it.
_HEAD_END = re.compile(rb"\n\r?\n")
_FIRST_LETTER = 0x21
# A larger body is not copied for the sake of one call less.
_JOINED_BYTES = 65536
# How long, and how much, an unread body is drained for: closed at once, the client may never see the response.
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 2**20
# Asks for the bytes that are not sent yet, because the client does not take them (linux/sockios.h).
_SIOCOUTQNSD = 0x894B
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ConnectedServer(Protocol):
    """What a connection needs of its server; as `HttpServer` has it."""

    name: str
    limits: Limits
    web_config: WebConfig
    is_stopping: bool

    def respond(self, request: Request, connection: Connection) -> Response:
        """Return the response to a request."""

    def begin_sending(self, connection: Connection, size: int) -> None:
        """Note a response that is about to be sent."""

    def begin_draining(self, connection: Connection) -> None:
        """Note a connection that has been answered, and of which only an unread body is still awaited."""

    def cut_draining(self) -> bool:
        """Cut one connection that has been answered, for a new one; False if there is none."""

    def release_slot(self, connection: Connection) -> None:
        """Give back the slot of a connection that has been answered."""


class Connection:
    """One connection; at any time either in the loop that receives heads, or in the thread that answers a request.

    Args:
        server: whose limits, TLS and responses it has.
        accepted: the socket.
        client: the client's address, or the network that clients are counted by.
        peer: `host:port` of the client.

    Attributes:
        fileno: of the socket, also once TLS is around it or it is closed.
        waiting_since: since when it waits for a handshake or a head, by `time.monotonic`; None while it is answered.
        deadline: by when that has to come.
        is_welcome: whether a request of it was answered with what it asked for, and it asks for nothing more before it
            has read that.
        sending_since: since when it sends a response; None while it does not.
    """

    def __init__(self, server: ConnectedServer, accepted: socket.socket, client: str, peer: str = "") -> None:
        self._server = server
        self._limits = server.limits
        self.socket = accepted
        self.fileno = accepted.fileno()
        self.client = client
        self._peer = peer
        now = time.monotonic()
        self.waiting_since: float | None = now
        self.deadline = now + self._limits.head_seconds
        self.is_welcome = False
        self.sending_since: float | None = None
        self._tls: Tls | None = None
        self._is_open = False  # TLS, where it is configured, has been agreed on
        self._refusal: BadRequest | None = None
        self._received = bytearray()
        self._searched = 0  # so many bytes of it hold no end of a head
        self._is_ended = False
        self._is_answered = False
        self._is_unread = False  # a request waits for the client to take the response before it
        # The last request without a body, as it came: a scraper sends the same bytes each time, parsed once.
        self._last: tuple[bytes, Request, h11.Connection] | None = None

    def begin(self, web_config: WebConfig) -> None:
        """Prepare for what `receive` takes first."""
        self.socket.settimeout(0)
        self._tls = web_config.current().tls
        self._is_open = self._tls is None

    def receive(self) -> str:
        """Take what has arrived, without waiting.

        Returns:
            What has to come: "read" or "write", for the socket to be ready for that; "answer", for a head is complete;
            "" for a connection that is over.

        Raises:
            OSError: it broke.
        """
        try:
            if not self._is_open and not self._handshake():
                return "answer" if self._refusal else ""
            return self._receive_head()
        except BlockingIOError:
            return "read"
        except OSError as error:
            waits_for = self._tls.waits_for(error) if self._tls else ""
            if not waits_for:
                raise
            return waits_for

    def answer(self) -> bool:
        """Answer the requests that have arrived; False if the connection ends with them. Raises `OSError`."""
        self.waiting_since = None
        if self._refusal is not None:
            self._refuse(self._refusal)
            return False
        while True:
            request, parser = self._request(bytes(self._received))
            if request is None or not self._serve(request, parser):
                return False
            self._is_answered = True
            self._received = bytearray(parser.trailing_data[0])
            self._searched = 0
            if not self._has_head() or self._unsent_bytes():
                break
        if self._server.is_stopping or (self._is_ended and not self._received):
            return False
        self.socket.settimeout(0)
        self.waiting_since = time.monotonic()
        seconds = self._limits.head_seconds if self._received else self._limits.idle_seconds
        self.deadline = self.waiting_since + seconds
        return True

    def cut(self) -> None:
        """End it from another thread, whatever its own is waiting for; raises `OSError` if it has ended."""
        # Not the method of a TLS socket, which takes the encryption off what its thread still reads.
        socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the sending half, then close."""
        with contextlib.suppress(OSError):  # the client was faster
            self.socket.shutdown(socket.SHUT_WR)
        self.socket.close()

    def _handshake(self) -> bool:
        """Go on with the handshake; False for a client that does not begin one, or may not connect."""
        from trainwarden.server.tls import ClientRefused  # noqa: PLC0415  # imported already: `_tls` comes from it

        if self._tls is None:
            return True
        if not self._tls.is_wrapped(self.socket):
            first = self.socket.recv(1, socket.MSG_PEEK)
            if first != TLS_HANDSHAKE:
                if first:
                    self._refusal = BadRequest(HTTPStatus.BAD_REQUEST, "this port speaks HTTPS, not HTTP")
                return False
            self.socket = self._tls.wrap(self.socket)
        try:
            self._tls.handshake(self.socket)
        except ClientRefused as error:
            log.warning("a client was refused: %s", error)
            return False
        self._is_open = True
        self.deadline = time.monotonic() + self._limits.head_seconds
        return True

    def _receive_head(self) -> str:
        while not self._has_head():
            data = self.socket.recv(_RECEIVE_BYTES)
            if not data:
                self._is_ended = True
                return "answer" if self._received else ""
            if not self._received:
                self.deadline = time.monotonic() + self._limits.head_seconds
            self._received += data
        return "write" if self._is_answered and self._waits_for_reader() else "answer"

    def _waits_for_reader(self) -> bool:
        """Return whether the client has yet to take the last response; the socket is ready to write once it has."""
        is_unread = self._unsent_bytes() > 0
        if is_unread != self._is_unread:
            self._is_unread = is_unread
            if is_unread:
                self.deadline = time.monotonic() + self._limits.send_seconds
            with contextlib.suppress(OSError):  # no socket of TCP: ready once there is room
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, int(is_unread))
        return is_unread

    def _unsent_bytes(self) -> int:
        """Return how much of the responses has not left this end; 0 where that cannot be seen."""
        try:
            answer = fcntl.ioctl(self.fileno, _SIOCOUTQNSD, bytes(4))
        except OSError:
            return 0
        return int(struct.unpack("=i", answer)[0])

    def _has_head(self) -> bool:
        """Return whether what was received holds a head, or can become none."""
        received = self._received
        if not received:
            return False
        if received[0] < _FIRST_LETTER or len(received) > self._limits.head_bytes:
            return True
        if _HEAD_END.search(received, max(0, self._searched - 2)) is not None:
            return True
        self._searched = len(received)
        return False

    def _request(self, received: bytes) -> tuple[Request | None, h11.Connection]:
        """Return the request that begins with `received`, and what parsed it; None for one that cannot be answered."""
        if self._last is not None and received == self._last[0]:
            return self._last[1:]
        end = _HEAD_END.search(received)
        if end is not None and end.end() > self._limits.head_bytes:
            received = received[: end.start()]  # refused as one that has no end
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
        parser.receive_data(received)
        try:
            event = parser.next_event()
            if event is h11.NEED_DATA and self._is_ended:
                parser.receive_data(b"")
                event = parser.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            self._refuse(BadRequest(status, status.phrase.lower()))
            return None, parser
        if not isinstance(event, h11.Request):  # nothing but the end of the connection
            return None, parser
        if event.http_version not in {b"1.0", b"1.1"}:
            self._refuse(BadRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "expected HTTP/1.1"))
            return None, parser
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may go by the other length, and take for a body what is read here as the next request.
            self._refuse(BadRequest(HTTPStatus.BAD_REQUEST, "expected Content-Length or Transfer-Encoding, not both"))
            return None, parser
        if "content-length" not in headers and "transfer-encoding" not in headers:
            parser.next_event()  # its end, which comes without a byte more

        def read_body(limit: int) -> bytes:
            return self._receive_body(parser, headers, limit)

        request = Request(event.method.decode("ascii"), event.target.decode("ascii"), headers, read_body, self._peer)
        is_whole = parser.their_state is h11.DONE and not parser.trailing_data[0]
        if is_whole and len(received) <= _REMEMBERED_BYTES:
            self._last = received, request, parser
        return request, parser

    def _receive_body(self, parser: h11.Connection, headers: dict[str, str], limit: int) -> bytes:
        too_large = BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {limit} bytes")
        if headers.get("content-encoding", "identity") != "identity":
            raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed")
        if "transfer-encoding" not in headers:
            if "content-length" not in headers:
                raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "Content-Length is needed")
            if int(headers["content-length"]) > limit:  # digits alone: h11 has checked them
                raise too_large
        deadline = time.monotonic() + self._limits.body_seconds
        body = bytearray()
        try:
            if parser.they_are_waiting_for_100_continue:
                self._send(b"HTTP/1.1 100 Continue\r\n\r\n", deadline)
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    parser.receive_data(self._receive(deadline))
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > limit:
                        raise too_large
                else:
                    return bytes(body)
        except h11.RemoteProtocolError as error:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "the body ended early, or is not framed as HTTP") from error
        except OSError as error:  # TimeoutError, or the client has gone
            raise BadRequest(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from error

    def _serve(self, request: Request, parser: h11.Connection) -> bool:
        """Send the response to a request; False if the connection ends with it."""
        try:
            response = self._server.respond(request, self)
            log.debug("%s %s: %d", request.method, request.path, response.status)
            # One that asks for more before it has read that there is no place would be refused again and again.
            is_refused = response.status == HTTPStatus.SERVICE_UNAVAILABLE and parser.trailing_data[0]
            # Not done: the body was not read, or another protocol was asked for.
            stays = parser.their_state is h11.DONE and not self._server.is_stopping and not is_refused
            head = self._head(response, stays)
            body = b"" if request.method == "HEAD" else response.body
            self._server.begin_sending(self, len(body))
            now = self.sending_since = time.monotonic()
            deadline = now + self._limits.send_seconds
            if len(body) <= _JOINED_BYTES:
                self._send(head + body, deadline)  # one call, and one segment where they fit into it
            else:
                self._send(head, deadline)
                self._send(body, deadline)
            if parser.trailing_data[0]:
                self.is_welcome = False  # what was sent so far fits into buffers, whether it is read or not
            elif response.status < HTTPStatus.BAD_REQUEST:
                self.is_welcome = True
        finally:
            self.sending_since = None
            self._server.release_slot(self)  # held until it is sent: responses that wait for slow clients take memory
        if parser.their_state is h11.SEND_BODY:
            self._drain()
        return stays

    def _head(self, response: Response, stays: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {response.status.value} {response.status.phrase}",
            f"Server: {self._server.name}",
            f"Date: {http_date(time.time())}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            f"Connection: {'keep-alive' if stays else 'close'}",
            *(f"{name}: {value}" for name, value in response.headers),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def _refuse(self, error: BadRequest) -> None:
        """Answer what is no request, and end."""
        response = plain(error.status, str(error))
        self._send(self._head(response, stays=False) + response.body, time.monotonic() + self._limits.send_seconds)
        self._drain()

    def _receive(self, deadline: float) -> bytes:
        self._set_timeout(deadline)
        return self.socket.recv(_RECEIVE_BYTES)

    def _send(self, data: bytes, deadline: float) -> None:
        # Not `sendall`, whose timeout a TLS socket counts anew for each record.
        left = memoryview(data)
        while left:
            self._set_timeout(deadline)
            left = left[self.socket.send(left) :]

    def _set_timeout(self, deadline: float) -> None:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("over its time")
        self.socket.settimeout(seconds)

    def _drain(self) -> None:
        """Receive and drop what the client still sends of a body that was not read."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        left = _DRAIN_BYTES
        with contextlib.suppress(OSError):  # the response may have arrived all the same
            socket.socket.shutdown(self.socket, socket.SHUT_WR)
            self._server.begin_draining(self)
            while left > 0 and (data := self._receive(deadline)):
                left -= len(data)


def http_date(seconds: float) -> str:
    """Return a time (Unix seconds) as HTTP writes it, whatever the locale."""
    moment = time.gmtime(seconds)
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02d}:{moment.tm_min:02d}:{moment.tm_sec:02d}"
    return f"{day}, {moment.tm_mday:02d} {month} {moment.tm_year} {clock} GMT"
