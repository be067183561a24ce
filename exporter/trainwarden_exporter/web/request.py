"""Reads the head of a request: all of HTTP that an answer to GET needs, without the modules that a client needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping

READING = ("GET", "HEAD")
MAX_LINE = 8192
MAX_HEADERS = 100
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00\r\n]*)")


class BadRequest(Exception):
    """What came is no request that can be answered; the connection ends after saying so."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True)
class Request:
    """The head of a request.

    Attributes:
        target: path and query, as sent.
        headers: names in lower case; what comes twice is joined by a comma.
        keeps_open: the client may send another on this connection.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps_open: bool = False

    @property
    def path(self) -> str:
        """The target up to its query, as sent; of a whole address what follows the host."""
        target = self.target.partition("?")[0]
        if target[:7].lower() != "http://":
            return target
        return "/" + target[7:].partition("/")[2]

    def query(self) -> list[tuple[str, str]]:
        """Return the names and values of the query; raises `ValueError` if there are too many."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True, max_num_fields=MAX_HEADERS)


def read_request(stream: BinaryIO) -> Request | None:
    """Read one head; None where the client has closed before it, raises `BadRequest` for what is none."""
    line = stream.readline(MAX_LINE)
    if not line:
        return None
    match = _REQUEST_LINE.fullmatch(_ended(line, HTTPStatus.REQUEST_URI_TOO_LONG))
    if not match:
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers = _headers(stream)
    options = {option.strip() for option in headers.get("connection", "").lower().split(",")}
    keeps_open = "close" not in options and (match[3] == b"1" or "keep-alive" in options)
    if "content-length" in headers or "transfer-encoding" in headers:
        keeps_open = False  # a body that nobody reads must not pass for the next request
    return Request(match[1].decode(), match[2].decode(), headers, keeps_open)


def _headers(stream: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS + 1):
        line = _ended(stream.readline(MAX_LINE), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not line:
            return headers
        match = _HEADER.fullmatch(line)
        if not match:
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        name, value = match[1].decode().lower(), match[2].decode("latin-1").strip(" \t")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def _ended(line: bytes, too_long: HTTPStatus) -> bytes:
    """Return a line without its end; one that has none is too long, or was cut off by the client."""
    if not line.endswith(b"\n"):
        raise BadRequest(too_long if len(line) >= MAX_LINE else HTTPStatus.BAD_REQUEST)
    return line[:-2] if line.endswith(b"\r\n") else line[:-1]
