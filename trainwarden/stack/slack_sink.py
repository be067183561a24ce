"""A Slack incoming webhook of our own on loopback: shows each message as Slack would receive it."""

from __future__ import annotations

import html
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MAX_BODY_BYTES = 1024 * 1024
_LINK = re.compile(r"<([^|<>]+)\|([^<>]+)>")


@dataclass(frozen=True)
class Message:
    """One message: when it came (Unix seconds), its title, its text, its colour, and the payload itself."""

    time: float
    title: str
    text: str
    color: str
    payload: dict[str, Any]

    def plain(self) -> str:
        """The text as a reader of Slack sees it: links by their name, entities decoded."""
        return html.unescape(_LINK.sub(r"[\2]", self.text))


class SlackSink:
    """Listens on a free loopback port until `close()`."""

    def __init__(self, on_message: Callable[[Message], None] = lambda _message: None) -> None:
        self.messages: list[Message] = []
        # Like Slack's own, the address is the secret.
        self._path = f"/services/{secrets.token_hex(12)}"
        handler = type("Handler", (_Handler,), {"sink": self, "webhook": self._path})
        self._on_message = on_message
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="slack-sink", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The incoming webhook's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self._path}"

    def take(self, payload: dict[str, Any]) -> None:
        """Keep one message, and tell of it."""
        for part in payload.get("attachments") or [payload]:
            message = Message(
                time=time.time(),
                title=html.unescape(str(part.get("title") or part.get("fallback") or "")),
                text=str(part.get("text") or ""),
                color=str(part.get("color") or ""),
                payload=payload,
            )
            self.messages.append(message)
            self._on_message(message)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    sink: SlackSink
    webhook: str
    timeout = 10

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != self.webhook or not 0 < length <= _MAX_BODY_BYTES:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            payload = json.loads(self.rfile.read(length))
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST, "invalid_payload")
            return
        self.sink.take(payload)
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Requests are no news."""
