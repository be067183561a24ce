"""What every service gets from the server: addresses, connections that stay, errors, and an end that loses nothing."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.integration.server.conftest import Served, echo, read_all
from trainwarden.errors import UsageError
from trainwarden.server.address import parse_address, port_file
from trainwarden.server.messages import BadRequest, Request, Response, plain
from trainwarden.server.server import HttpServer


def test_one_connection_serves_many_requests_head_among_them(serve: Callable[..., Served]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serve().server.port, timeout=30)
    connection.connect()
    before = connection.sock
    for method, body in (("GET", b"GET /\n"), ("HEAD", b""), ("POST", b"POST / abc\n"), ("GET", b"GET /\n")):
        connection.request(method, "/", b"abc" if method == "POST" else None)
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, body)
        assert connection.sock is before
    connection.close()


def test_requests_of_the_same_bytes_and_others_between_them_are_each_answered(serve: Callable[..., Served]) -> None:
    same, other = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    posted = b"POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
    with serve().connect() as client:
        for sent, answers in (
            ([same], [b"GET /a"]), ([same], [b"GET /a"]), ([other], [b"GET /b"]), ([same], [b"GET /a"]),
            ([posted, b"abc"], [b"POST /c abc"]), ([posted, b"def"], [b"POST /c def"]), ([same], [b"GET /a"]),
            ([same[:9], same[9:]], [b"GET /a"]), ([same[:9], same[9:]], [b"GET /a"]), ([same], [b"GET /a"]),
            ([same + other], [b"GET /a", b"GET /b"]), ([same + same], [b"GET /a", b"GET /a"]),
            ([same, same[:5], same[5:]], [b"GET /a", b"GET /a"]),
        ):  # fmt: skip
            for part in sent:
                client.sendall(part)
                time.sleep(0.01)
            received = b""
            while received.count(b"HTTP/1.1 200 ") < len(answers) or not received.endswith(answers[-1] + b"\n"):
                received += client.recv(65536)
            for answer in answers:
                assert answer + b"\n" in received


@pytest.mark.parametrize(
    ("head", "stays"),
    [
        ("HTTP/1.1\r\nHost: x\r\n", True),
        ("HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n", False),
        ("HTTP/1.0\r\n", False),
    ],
)
def test_a_connection_stays_open_as_its_client_asks(serve: Callable[..., Served], head: str, stays: bool) -> None:
    answer = serve().exchange(f"GET / {head}\r\nGET / HTTP/1.0\r\n\r\n".encode())
    assert answer.count(b"HTTP/1.1 200") == 1 + stays


@pytest.mark.parametrize("path", ["read", "leave"])
def test_a_body_of_two_lengths_is_refused_and_what_follows_is_no_request(
    serve: Callable[..., Served], path: str
) -> None:
    """A proxy that goes by the other length would take the second request for the body of the first."""
    lengths = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = serve().exchange(f"POST /{path} HTTP/1.1\r\nHost: x\r\n{lengths}\r\n0\r\n\r\n{hidden}".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_response_has_the_server_s_headers_and_its_own(serve: Callable[..., Served]) -> None:
    served = serve(lambda _request: plain(HTTPStatus.CREATED, "made", ("X-Own", "y")), name="some-name")
    response, _ = served.ask()
    assert (response.status, response.headers["Server"], response.headers["X-Own"]) == (201, "some-name", "y")
    assert response.headers["Date"].endswith(" GMT")


def test_a_handler_that_fails_costs_its_request_alone(
    serve: Callable[..., Served], caplog: pytest.LogCaptureFixture
) -> None:
    def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise BadRequest(422, "not so")
        if request.path == "/broken":
            raise RuntimeError("a fault")
        return echo(request)

    served = serve(handler)
    assert served.ask("/bad")[1] == b"not so\n"
    assert served.ask("/broken")[0].status == 500
    assert served.ask("/good")[0].status == 200
    assert [record.message for record in caplog.records] == ["no response to /broken"]


def test_headers_come_in_lower_case_and_twice_the_same_joined(serve: Callable[..., Served]) -> None:
    seen: list[Request] = []

    def handler(request: Request) -> Response:
        seen.append(request)
        return echo(request)

    serve(handler).exchange(b"GET http://h:1/a?b=%20c&b=d HTTP/1.1\r\nHOST: h\r\nA: \t x, y \t\r\na:z\r\nX-E:\r\n\r\n")
    assert seen[0].headers == {"host": "h", "a": "x, y,z", "x-e": ""}
    assert (seen[0].path, seen[0].query()) == ("/a", [("b", " c"), ("b", "d")])


def test_the_path_of_a_whole_url_is_what_follows_its_host() -> None:
    for target, path in (("http://x:1/m?a=b", "/m"), ("HTTPS://x", "/"), ("http://x?a=b", "/"), ("*", "*")):
        assert Request("GET", target).path == path


def test_stopping_lets_a_response_under_way_end_and_cuts_idle_connections() -> None:
    entered, hold = threading.Event(), threading.Event()

    def slow(request: Request) -> Response:
        entered.set()
        assert hold.wait(30)
        return echo(request)

    server = HttpServer([("127.0.0.1", 0)], slow)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as busy:
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        busy.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert entered.wait(30)
        stopping = threading.Thread(target=server.stop, args=(30.0,))
        stopping.start()
        assert read_all(idle) == b""
        idle.close()
        hold.set()
        answer = read_all(busy)
        assert answer.endswith(b"GET /\n")
        assert b"\r\nConnection: close\r\n" in answer
        stopping.join(30)
        assert not stopping.is_alive()


def test_stopping_waits_no_longer_than_its_grace() -> None:
    hold = threading.Event()

    def stuck(request: Request) -> Response:
        hold.wait(60)
        return echo(request)

    with HttpServer([("127.0.0.1", 0)], stuck) as server:
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.2)
            begun = time.monotonic()
            server.stop(grace_seconds=0.1)
            assert time.monotonic() - begun < 5
            assert read_all(client) == b""
            hold.set()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_an_address_that_is_taken_is_named(serve: Callable[..., Served]) -> None:
    taken = serve().server.port
    with pytest.raises(OSError, match="Address already in use") as raised:
        HttpServer([("127.0.0.1", 0), ("127.0.0.1", taken)], echo)
    assert raised.value.filename == f"127.0.0.1:{taken}"


def test_an_empty_host_listens_on_every_address() -> None:
    with HttpServer([("", 0), ("127.0.0.1", 0)], echo) as server:
        server.start()
        assert len(server.bound) == 2
        hosts = ["127.0.0.1"]
        if server.bound[0].startswith("[") and has_ipv6_loopback():
            hosts.append("::1")
        for host in hosts:
            connection = http.client.HTTPConnection(host, server.port, timeout=30)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            connection.close()


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "address"), [("a:1", ("a", 1)), (":9745", ("", 9745)), ("[::1]:65535", ("::1", 65535)), ("x:00", ("x", 0))]
)
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["9745", "a", "", "::1:80", "a:65536", "a:-1", "a:²", "a:", "[::1]"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no address: expected host:port"):
        parse_address(text)


def test_the_port_file_names_what_is_bound_while_it_is(tmp_path: Path, serve: Callable[..., Served]) -> None:
    server, file = serve().server, tmp_path / "port"
    with port_file(file, server.bound[0]):
        assert file.read_text() == f"127.0.0.1:{server.port}\n"
    assert not file.exists()
    with (
        pytest.raises(UsageError, match=r"--web\.port-file .*; expected a file"),
        port_file(tmp_path / "no/x", server.bound[0]),
    ):
        pass


def test_a_client_that_resets_its_connection_within_a_body_is_no_fault_of_the_service(
    serve: Callable[..., Served], caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    def handler(request: Request) -> Response:
        try:
            return echo(request)
        finally:
            ended.set()

    with serve(handler).connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
        time.sleep(0.1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ended.wait(30)
    time.sleep(0.1)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
