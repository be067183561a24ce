"""Clients that send what is no request, send slowly, never read, or come in numbers: none keeps the others waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

import pytest

from tests.integration.server.conftest import MAX_BODY_BYTES, Served, echo, read_all
from tests.waiting import wait_until
from trainwarden.server.limits import Limits
from trainwarden.server.messages import Request, Response

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nX-Slow: 1\r\n"])
def test_a_client_that_does_not_complete_its_request_is_cut_off(serve: Callable[..., Served], sent: bytes) -> None:
    with serve(limits=Limits(head_seconds=0.2)).connect() as client:
        client.sendall(sent)
        assert read_all(client) == b""


def test_a_client_that_drips_its_request_is_cut_off_though_it_is_never_silent(serve: Callable[..., Served]) -> None:
    with serve(limits=Limits(head_seconds=0.3)).connect() as client:
        client.settimeout(0.02)
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    if client.recv(1) == b"":
                        raise ConnectionError


def test_an_idle_connection_is_closed(serve: Callable[..., Served]) -> None:
    with serve(limits=Limits(idle_seconds=0.2)).connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(client).endswith(b"GET /\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # without Host
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x", 400),
        (b"A" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), 400),  # a TLS handshake
    ],
)
def test_what_is_no_request_is_refused_and_the_next_client_served(
    serve: Callable[..., Served], sent: bytes, status: int
) -> None:
    served = serve()
    answer = served.exchange(sent)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert served.ask()[0].status == 200


def test_a_client_that_ends_its_half_is_answered(serve: Callable[..., Served]) -> None:
    assert serve().exchange(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"GET /x\n")
    assert serve().exchange(b"") == b""


def test_requests_that_come_together_are_answered_in_their_order(serve: Callable[..., Served]) -> None:
    requests = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(50)]
    posted = HEAD + b"Content-Length: 28\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = serve().exchange(b"".join([*requests, posted, *requests]))
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 101
    assert answer.index(b"GET /7\n") < answer.index(b"GET /8\n")


def test_a_body_that_is_not_read_is_not_taken_for_a_request(serve: Callable[..., Served]) -> None:
    sent = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 35\r\n\r\nGET /other HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = serve().exchange(sent, then_close=False)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Content-Length: 3\r\n\r\nabc", 200),
        (b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", 200),
        (b"\r\n", 411),
        (b"Content-Length: 4\r\n\r\nabc", 400),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc", 400),
        (b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"Content-Length: %s\r\n\r\n" % (b"9" * 19), 413),
        (b"Content-Length: 5000\r\n\r\n" + b"x" * 5000, 413),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + b"x" * 100 + b"\r\n" + (b"3e8\r\n" + b"x" * 1000), 413),
        (b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415),
    ],
)
def test_a_body_is_read_as_far_as_it_may_be(serve: Callable[..., Served], framing: bytes, status: int) -> None:
    answer = serve().exchange(HEAD + framing)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    if status == 200:
        assert answer.endswith(b"POST / abc\n")


def test_a_body_that_does_not_come_is_not_awaited_long(serve: Callable[..., Served]) -> None:
    answer = serve(limits=Limits(body_seconds=0.2)).exchange(HEAD + b"Content-Length: 9\r\n\r\n{", then_close=False)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_large_body_that_is_refused_does_not_hide_the_answer(serve: Callable[..., Served]) -> None:
    """Closed with bytes unread, the connection would be reset, and the client might not see why."""
    for _ in range(20):
        response, body = serve().ask("/", "POST", body=b"x" * 900_000)
        assert (response.status, body) == (413, b"the body has more than 1000 bytes\n")


def test_a_client_that_expects_100_continue_gets_it(serve: Callable[..., Served]) -> None:
    with serve().connect() as client:
        client.sendall(HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert client.recv(65536).endswith(b"POST / abc\n")


LARGE = Response(HTTPStatus.OK, "text/plain", b"x" * 12_000_000)


def large_page(request: Request) -> Response:
    """Answer with more than what socket buffers take."""
    return LARGE if request.path == "/large" else echo(request)


def test_clients_that_ask_and_never_read_hold_up_no_other_for_long(serve: Callable[..., Served]) -> None:
    served = serve(large_page)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(served.connect())
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        begun = time.monotonic()
        wait_until(lambda: served.ask()[0].status == 200, "a request to be answered")
        assert time.monotonic() - begun < 20  # 30 s, where each held its slot to the end


def test_a_slow_reader_is_not_cut_where_no_other_needs_its_place(serve: Callable[..., Served]) -> None:
    with serve(large_page, limits=Limits(requests=1)).connect() as client:
        client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        time.sleep(1.5)
        assert len(read_all(client)) > 12_000_000


def test_a_client_that_reads_too_slowly_is_cut_off(serve: Callable[..., Served]) -> None:
    with serve(large_page, limits=Limits(send_seconds=0.3)).connect() as client:
        client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        time.sleep(1.0)
        assert len(read_all(client)) < 12_000_000


def test_one_request_too_many_is_refused_at_once(serve: Callable[..., Served]) -> None:
    hold, entered = threading.Event(), threading.Semaphore(0)

    def slow(request: Request) -> Response:
        entered.release()
        assert hold.wait(30)
        return echo(request)

    served = serve(slow, limits=Limits(requests=2))
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(served.ask()[0].status)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=30)
    assert served.ask()[0].status == 503
    hold.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200, 200]
    assert served.ask()[0].status == 200


def test_idle_connections_give_way_to_new_ones(serve: Callable[..., Served]) -> None:
    served = serve(limits=Limits(connections=5))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(served.connect())
        for _ in range(20):
            stack.enter_context(served.connect())
        assert served.ask()[0].status == 200
        assert read_all(first) == b""


def test_where_all_connections_are_at_work_one_more_is_closed(serve: Callable[..., Served]) -> None:
    hold, entered = threading.Event(), threading.Semaphore(0)

    def slow(request: Request) -> Response:
        entered.release()
        assert hold.wait(30)
        return echo(request)

    served = serve(slow, limits=Limits(connections=2))
    with served.connect() as one, served.connect() as two:
        for client in (one, two):
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert entered.acquire(timeout=30)
        assert served.exchange(b"GET / HTTP/1.0\r\n\r\n") == b""
        hold.set()
        for client in (one, two):
            assert read_all(client).endswith(b"GET /\n")


def test_a_client_that_disappears_in_the_middle_of_an_answer_is_forgotten(
    serve: Callable[..., Served], caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(large_page, limits=Limits(requests=1))
    for _ in range(5):
        with served.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(10)
    wait_until(lambda: served.ask()[0].status == 200, "a request to be answered")
    assert not caplog.records
