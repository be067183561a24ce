"""A request as a service gets it, and the response that it returns."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_QUERY_FIELDS = 100
TEXT = "text/plain; charset=utf-8"
_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


class BadRequest(Exception):
    """A request that is answered with `status` and a reason of one line instead of what it asks for."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)


def no_body(_limit: int) -> bytes:
    """Return the body of a request that has none."""
    return b""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        target: path and query, as sent.
        headers: names in lower case; the values of a name that comes twice are joined by a comma.
        read_body: receives the body, at most so many bytes; raises `BadRequest` for one without a length, for one
            that is larger, compressed or cut short, and for one that does not come in time.
        client: the connection that it came by, `host:port` of the client.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    read_body: Callable[[int], bytes] = no_body
    client: str = ""

    @property
    def path(self) -> str:
        """The target up to its query, as sent; of a whole URL, as a proxy may send it, what follows the host."""
        target = self.target.partition("?")[0]
        origin = _ORIGIN.match(target)
        return (target[origin.end() :] or "/") if origin else target

    def query(self) -> list[tuple[str, str]]:
        """Return the names and values of the query; raises `ValueError` if there are too many."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)


@dataclass(frozen=True)
class Response:
    """What is sent back; the server adds `Date`, `Server`, `Content-Length` and `Connection`."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    """Return a response of one line of text."""
    return Response(status, TEXT, f"{text}\n".encode("utf-8", "replace"), headers)


def json_response(status: HTTPStatus, value: object, *headers: tuple[str, str]) -> Response:
    """Return a response whose body is `value` as JSON."""
    return Response(status, "application/json", json.dumps(value).encode(), headers)


def credentials_of(authorization: str) -> tuple[str, str] | None:
    """Return user and password of a header `Authorization`; None where it holds none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
