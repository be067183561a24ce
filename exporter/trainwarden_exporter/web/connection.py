"""One client's connection: TLS where it is asked for, and requests one after the other."""

from __future__ import annotations

import logging
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from trainwarden_exporter.web.request import READING, BadRequest, Request, read_request
from trainwarden_exporter.web.site import BUSY, Answer, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.web.site import Site
    from trainwarden_exporter.web.tls import Tls

log = logging.getLogger(__name__)

TLS_HANDSHAKE = b"\x16"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Connection:
    """Serves one connection; `extend` is called with it when it gets time for one more request."""

    def __init__(self, site: Site, accepted: socket.socket, extend: Callable[[Connection], None]) -> None:
        self._site = site
        self._extend = extend
        self.socket = accepted

    def serve(self) -> None:
        """Answer requests until the client has no more, or sends what is none; raises `OSError` where it breaks."""
        self._extend(self)
        tls = self._site.access().tls
        if tls is not None and not self._secured(tls):
            return
        with self.socket.makefile("rb") as stream:
            keeps_open = True
            while keeps_open:
                try:
                    request = read_request(stream)
                except BadRequest as error:
                    self._send(Request("GET", ""), plain(error.status, error.status.phrase))
                    return
                if request is None:
                    return
                keeps_open = request.keeps_open and request.method in READING
                self._serve(request)
                self._extend(self)

    def cut(self) -> None:
        """End it from another thread, whatever its own is waiting for."""
        # Not the method of a TLS socket, which takes the encryption off what its thread still reads.
        socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def _secured(self, tls: Tls) -> bool:
        """Put TLS around the connection; False if the client does not speak it, or is nobody who may."""
        from trainwarden_exporter.web.tls import Refused  # noqa: PLC0415  # there, for `tls` comes from it

        first = self.socket.recv(1, socket.MSG_PEEK)
        if first != TLS_HANDSHAKE:
            if first:
                answer = plain(HTTPStatus.BAD_REQUEST, "this port speaks HTTPS, not HTTP")
                self._send(Request("GET", ""), answer)
            return False
        wrapped = self.socket = tls.wrap(self.socket)
        wrapped.do_handshake()
        try:
            tls.check(wrapped)
        except Refused as error:
            log.warning("a client was refused: %s", error)
            return False
        return True

    def _serve(self, request: Request) -> None:
        # Until it is sent: pages that wait for slow clients take memory.
        free = self._site.requests.acquire(blocking=False)
        try:
            self._send(request, self._answer(request) if free else BUSY)
        finally:
            if free:
                self._site.requests.release()

    def _answer(self, request: Request) -> Answer:
        try:
            return self._site.answer(request)
        except Exception:  # the next request may be answered
            log.exception("no answer to %s", request.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "no answer, see the log")

    def _send(self, request: Request, answer: Answer) -> None:
        log.debug("%s %s: %d", request.method, request.path, answer.status)
        stays = request.keeps_open and request.method in READING
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            "Server: trainwarden-exporter",
            f"Date: {http_date(time.time())}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            f"Connection: {'keep-alive' if stays else 'close'}",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        # Head and body leave together.
        self.socket.sendall(head if request.method == "HEAD" else head + answer.body)


def http_date(seconds: float) -> str:
    """Return a time (Unix seconds) as HTTP writes it, whatever the locale."""
    moment = time.gmtime(seconds)
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02d}:{moment.tm_min:02d}:{moment.tm_sec:02d}"
    return f"{day}, {moment.tm_mday:02d} {month} {moment.tm_year} {clock} GMT"
