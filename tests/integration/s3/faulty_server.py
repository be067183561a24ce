"""A proxy in front of S3 that misbehaves on request."""

import datetime as dt
import email.utils
import http.client
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SLOW_SECONDS = 0.1
_DATED = re.compile(rb"<LastModified>([^<]+)</LastModified>")
_ERRORS = {
    "forbidden": (403, "AccessDenied"),
    "expired": (400, "ExpiredToken"),
    "slow down": (503, "SlowDown"),
    "broken": (500, "InternalError"),
    "full": (507, "InsufficientStorage"),
}
# What the server must not pass on as it came.
_OWN_HEADERS = frozenset(("connection", "transfer-encoding", "expect", "content-length", "date", "server"))


class FaultyServer(ThreadingHTTPServer):
    """Passes requests on to `upstream`, as `fault` says.

    `fault` is "" for none, "slow", "black hole" (takes the request and never answers), "reset" (hangs up), "half" (an
    answer that breaks off), "proxy" (somebody else answers, with a page), "endless" (with one that goes on, to 3 GiB),
    "unconditional" (a server that knows no conditions), "no reading" (it forbids that alone), "lost answer" (does what
    it is asked to, and hangs up), or one
    of `_ERRORS`. `touched` keeps `METHOD key` of each request, percent-decoded, as it came in; `signed` is what the
    last one was signed with; `skew` is how many
    seconds its clock is ahead.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urllib.parse.urlsplit(upstream).netloc
        self.fault = ""
        self.touched: list[str] = []
        self.signed = ""
        self.skew = 0
        self.keeps_alive = False
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what this is for."""


@contextmanager
def faulty_server(upstream: str) -> Iterator[FaultyServer]:
    server = FaultyServer(upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        self.close_connection = not self.server.keeps_alive
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(self.path.partition("?")[0])
        self.server.touched.append(f"{self.command} {path.lstrip('/').partition('/')[2]}")
        self.server.signed = self.headers.get("Authorization", "")
        fault = self.server.fault
        conditional = bool(self.headers.get("If-Match") or self.headers.get("If-None-Match"))
        if fault == "black hole":
            self.server.released.wait()
        elif fault in _ERRORS:
            self._refuse(*_ERRORS[fault])
        elif fault == "proxy":
            self._answer(200, b"<html><body>Please sign in</body></html>")
        elif fault == "endless":
            self.send_response(200)
            self.end_headers()
            for _ in range(3 * 2**10):
                self.wfile.write(bytes(2**20))
        elif fault == "no reading" and self.command == "GET":
            self._refuse(*_ERRORS["forbidden"])
        elif fault == "unconditional" and conditional:
            self._refuse(501, "NotImplemented")
        elif fault != "reset":
            self.server.released.wait(_SLOW_SECONDS if fault == "slow" else 0)
            self._pass_on(body, fault)

    do_GET = do_PUT = do_DELETE = do_HEAD = _handle  # noqa: N815  # the names that http.server calls

    def _pass_on(self, body: bytes, fault: str) -> None:
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if fault == "lost answer":
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, self._dated(value) if name.lower() == "last-modified" else value)
        content = _DATED.sub(self._moved, content) if self.server.skew else content
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "half" else content)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(int(timestamp or time.time()) + self.server.skew)

    def _dated(self, text: str) -> str:
        return self.date_time_string(email.utils.parsedate_to_datetime(text).timestamp())

    def _moved(self, found: re.Match[bytes]) -> bytes:
        moved = dt.datetime.strptime(found[1].decode()[:19] + "Z", "%Y-%m-%dT%H:%M:%S%z")
        moved += dt.timedelta(seconds=self.server.skew)
        return b"<LastModified>" + moved.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode() + b"</LastModified>"

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>no: AKIASECRET</Message></Error>".encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """The tests look at `touched`."""
