"""Connections that wait for requests: who is served first."""

from __future__ import annotations

import contextlib
import socket

from trainwarden.server.connection import Connection
from trainwarden.server.limits import Limits
from trainwarden.server.messages import Request, Response
from trainwarden.server.waiting import WaitingConnections
from trainwarden.server.web_config import NoWebConfig, WebConfig


class Server:
    """What connections need of a server; nothing is answered."""

    name = "test"
    limits = Limits()
    web_config: WebConfig = NoWebConfig()
    is_stopping = False

    def respond(self, request: Request, connection: Connection) -> Response:
        """Not called."""
        raise AssertionError

    def begin_sending(self, connection: Connection, size: int) -> None:
        """Not called."""

    def begin_draining(self, connection: Connection) -> None:
        """Not called."""

    def cut_draining(self) -> bool:
        """Cut nothing."""
        return False

    def release_slot(self, connection: Connection) -> None:
        """Not called."""


def test_a_client_that_reads_its_responses_is_served_before_a_crowd() -> None:
    server, served = Server(), list[Connection]()
    ends: list[socket.socket] = []

    def answer(connection: Connection) -> None:
        served.append(connection)
        server.is_stopping = len(served) == len(ends)

    waiting = WaitingConnections(server, [], 512, answer)
    connections = []
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
            ends.append(theirs)
            connection = Connection(server, ours, "10.0.0.1")
            connection.begin(server.web_config)
            connections.append(connection)
        scraper = connections[-1]
        scraper.is_welcome = True
        for connection in connections:
            waiting._wait_for(connection)
        for end in ends:
            end.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.run()
        waiting.close()
    assert served[0] is scraper
    assert set(served) == set(connections)
