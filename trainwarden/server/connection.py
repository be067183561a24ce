"""One client's connection: TLS where it is configured, then requests one after the other, each with deadlines.

h11 parses: it decides what is a request, where a body ends, and whether the connection may go on. The head of a
response is written here, because each body is complete and its length known; h11's own writer would take 60 µs more of
a scrape. To parse takes h11 80 µs, so the request of a scraper, the same bytes each time, is parsed once.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11

from trainwarden.server.messages import BadRequest, Request, Response, plain

if TYPE_CHECKING:
    from trainwarden.server.server import HttpServer
    from trainwarden.server.tls import Tls

log = logging.getLogger(__name__)

TLS_HANDSHAKE = b"\x16"
_RECEIVE_BYTES = 16384
_REMEMBERED_BYTES = 4096
# A larger body is not copied for the sake of one call less.
_JOINED_BYTES = 65536
# How long, and how much, an unread body is drained for: closed at once, the client may never see the response.
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 2**20
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Connection:
    """Serves one connection in a thread of its own.

    Attributes:
        idle_since: since when it waits for the first byte of a request, by `time.monotonic`; None while it has one.
        sending_since: since when it sends a response; None while it does not.
    """

    def __init__(self, server: HttpServer, accepted: socket.socket) -> None:
        self._server = server
        self._limits = server.limits
        self.socket = accepted
        self.idle_since: float | None = time.monotonic()
        self.sending_since: float | None = None
        # The last request without a body, as it came: a scraper sends the same bytes each time, parsed once.
        self._last: tuple[bytes, Request, h11.Connection] | None = None

    def serve(self) -> None:
        """Answer requests until the client ends, is late or sends what is no request; raises `OSError` if it breaks."""
        deadline = time.monotonic() + self._limits.head_seconds
        tls = self._server.web_config.current().tls
        if tls is not None and not self._start_tls(tls, deadline):
            return
        received = b""
        while True:
            received = received or self._receive(deadline)
            if not received:
                return
            self.idle_since = None
            request, parser = self._request(received)
            if request is None or not self._serve(request, parser):
                return
            received, _ = parser.trailing_data
            self.idle_since = time.monotonic()
            deadline = self.idle_since + self._limits.idle_seconds
            if self._server.is_stopping:
                return

    def cut(self) -> None:
        """End it from another thread, whatever its own is waiting for; raises `OSError` if it has ended."""
        # Not the method of a TLS socket, which takes the encryption off what its thread still reads.
        socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the sending half, then close."""
        with contextlib.suppress(OSError):  # the client was faster
            self.socket.shutdown(socket.SHUT_WR)
        self.socket.close()

    def _start_tls(self, tls: Tls, deadline: float) -> bool:
        """Put TLS around the connection; False for a client that does not begin a handshake, or may not connect."""
        from trainwarden.server.tls import ClientRefused  # noqa: PLC0415  # imported already: `tls` comes from it

        self._set_timeout(deadline)
        first = self.socket.recv(1, socket.MSG_PEEK)
        if first != TLS_HANDSHAKE:
            if first:
                self._refuse(BadRequest(HTTPStatus.BAD_REQUEST, "this port speaks HTTPS, not HTTP"))
            return False
        self.idle_since = None
        wrapped = self.socket = tls.wrap(self.socket)
        self._set_timeout(time.monotonic() + self._limits.head_seconds)
        wrapped.do_handshake()
        try:
            tls.check(wrapped)
        except ClientRefused as error:
            log.warning("a client was refused: %s", error)
            return False
        self.idle_since = time.monotonic()
        return True

    def _request(self, received: bytes) -> tuple[Request | None, h11.Connection]:
        """Return the request that begins with `received`, and what parsed it; None for one that cannot be answered."""
        if self._last is not None and received == self._last[0]:
            return self._last[1:]
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
        parser.receive_data(received)
        deadline = time.monotonic() + self._limits.head_seconds
        came_at_once = True
        try:
            while (event := parser.next_event()) is h11.NEED_DATA:
                came_at_once = False
                parser.receive_data(self._receive(deadline))
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            self._refuse(BadRequest(status, status.phrase.lower()))
            return None, parser
        if not isinstance(event, h11.Request):  # the end of the connection
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

        request = Request(event.method.decode("ascii"), event.target.decode("ascii"), headers, read_body)
        is_whole = came_at_once and parser.their_state is h11.DONE and not parser.trailing_data[0]
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
        # Held until it is sent: responses that wait for slow clients take memory.
        has_slot = self._server.acquire_slot(self)
        try:
            busy = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once")
            response = self._server.respond(request) if has_slot else busy
            log.debug("%s %s: %d", request.method, request.path, response.status)
            # Not done: the body was not read, or another protocol was asked for.
            stays = parser.their_state is h11.DONE and not self._server.is_stopping
            head = self._head(response, stays)
            body = b"" if request.method == "HEAD" else response.body
            now = self.sending_since = time.monotonic()
            deadline = now + self._limits.send_seconds
            if len(body) <= _JOINED_BYTES:
                self._send(head + body, deadline)  # one call, and one segment where they fit into it
            else:
                self._send(head, deadline)
                self._send(body, deadline)
        finally:
            self.sending_since = None
            if has_slot:
                self._server.release_slot(self)
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
            while left > 0 and (data := self._receive(deadline)):
                left -= len(data)


def http_date(seconds: float) -> str:
    """Return a time (Unix seconds) as HTTP writes it, whatever the locale."""
    moment = time.gmtime(seconds)
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02d}:{moment.tm_min:02d}:{moment.tm_sec:02d}"
    return f"{day}, {moment.tm_mday:02d} {month} {moment.tm_year} {clock} GMT"
