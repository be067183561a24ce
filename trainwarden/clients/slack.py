"""Slack: an incoming webhook, whose address is a secret.

https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainwarden.clients.http import HttpClient, HttpError, read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_SECONDS = 10.0
# The message itself is refused; all others mean that the way is closed.
_OF_MESSAGE = frozenset((400, 413, 422))
_URL = re.compile(r"https?://[^\s@/]+(/\S*)?")
_EXPECTED = "expected the address of an incoming webhook, https://…"


class NotSent(Exception):
    """A message was not delivered. The text holds no secret. `of_message`: the way is open for others."""

    def __init__(self, reason: str, *, of_message: bool = False) -> None:
        super().__init__(reason)
        self.of_message = of_message


def escape(text: str) -> str:
    """Return text of others for Slack: three characters mean something there, and so do three backticks."""
    shown = text.replace("```", "'''")
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class SlackWebhook:
    """An incoming webhook.

    Args:
        url: its address; or the file that holds it, which is read for each message.
    """

    def __init__(self, url: str | Path) -> None:
        self._place = url

    def check(self) -> None:
        """Raise NotSent if there is no address."""
        self._url()

    def post(self, body: Mapping[str, Any]) -> None:
        """Send the JSON of a message; raises NotSent."""
        try:
            answer = HttpClient(self._url(), _TIMEOUT_SECONDS).post("", dict(body))
        except HttpError as error:
            raise NotSent(f"Slack gives no answer: {error.reason}") from None  # the rest names the address
        if answer.status != 200:
            raise NotSent(f"Slack answered {answer.status}", of_message=answer.status in _OF_MESSAGE)

    def _url(self) -> str:
        if isinstance(self._place, str):
            if not _URL.fullmatch(self._place):
                raise NotSent(_EXPECTED)
            return self._place
        try:
            url = read_secret(self._place)
        except HttpError as error:
            raise NotSent(str(error)) from None
        if not _URL.fullmatch(url):
            raise NotSent(f"{self._place}: {_EXPECTED}")
        return url
