"""An incoming webhook like Slack's on loopback, which keeps and shows each message."""

from __future__ import annotations

import html
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from trainwarden.server.messages import TEXT, Request, Response, plain
from trainwarden.server.server import HttpServer

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
        """Return the text as Slack shows it: links by their name, entities decoded."""
        return html.unescape(_LINK.sub(r"[\2]", self.text))


class SlackSink:
    """Listens on a free loopback port until `close()`."""

    def __init__(self, on_message: Callable[[Message], None] = lambda _message: None) -> None:
        self.messages: list[Message] = []
        # As with Slack, the address is the secret.
        self._path = f"/services/{secrets.token_hex(12)}"
        self._on_message = on_message
        self._server = HttpServer([("127.0.0.1", 0)], self._respond, name="slack-sink")
        self._server.start()

    @property
    def url(self) -> str:
        """The incoming webhook's address."""
        return f"http://{self._server.bound[0]}{self._path}"

    def close(self) -> None:
        """Stop listening."""
        self._server.stop()

    def _respond(self, request: Request) -> Response:
        if request.method != "POST" or request.path != self._path:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        try:
            payload = json.loads(request.read_body(_MAX_BODY_BYTES))
        except (ValueError, RecursionError):
            return plain(HTTPStatus.BAD_REQUEST, "invalid_payload")
        if not isinstance(payload, dict):
            return plain(HTTPStatus.BAD_REQUEST, "invalid_payload")
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
        return Response(HTTPStatus.OK, TEXT, b"ok")  # exactly the answer that Alertmanager takes for success
