"""Servers that end with their test."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from trainwarden.server.messages import Request, Response, plain
from trainwarden.server.server import HttpServer

MAX_BODY_BYTES = 1000


def echo(request: Request) -> Response:
    """Answer with method, path and, of a POST, the body."""
    body = request.read_body(MAX_BODY_BYTES) if request.method == "POST" else b""
    return plain(HTTPStatus.OK, f"{request.method} {request.path} {body.decode()}".rstrip())


class Served:
    """A server on a free loopback port."""

    def __init__(self, handler: Callable[[Request], Response], **options: Any) -> None:
        self.server = HttpServer([("127.0.0.1", 0)], handler, **options)
        self.server.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=30)

    def ask(
        self,
        path: str = "/",
        method: str = "GET",
        tls: ssl.SSLContext | None = None,
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        if tls is not None:
            connection = http.client.HTTPSConnection("localhost", self.server.port, timeout=30, context=tls)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def exchange(self, sent: bytes, *, then_close: bool = True) -> bytes:
        """Send bytes, end the sending half, and return all that comes back until the server closes."""
        with self.connect() as client:
            try:
                client.sendall(sent)
                if then_close:
                    client.shutdown(socket.SHUT_WR)
            except OSError:  # it may have answered and gone before it has read all
                pass
            return read_all(client)


def read_all(client: socket.socket) -> bytes:
    received = b""
    try:
        while part := client.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts a server of a handler, by default one that echoes."""
    started: list[Served] = []

    def start(handler: Callable[[Request], Response] = echo, **options: Any) -> Served:
        started.append(Served(handler, **options))
        return started[-1]

    yield start
    for one in started:
        one.server.stop(grace_seconds=0.0)
