"""A service on a free loopback port that answers in JSON what a function chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request: `query` by name, `body` as it was sent."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[Asked], tuple[int, object]]


class AnsweringService:
    """Answers each request at `url` with the status and the body of `answer`, from many threads, until `close()`.

    A body of bytes is sent as it is, any other as JSON.
    """

    def __init__(self, answer: Answer) -> None:
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    answer: Answer

    def _respond(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, said = self.answer(Asked(self.command, url.path, parse_qs(url.query), dict(self.headers), body))
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _respond  # noqa: N815  # names of the base class's

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""
