"""Heads of requests, good and hostile."""

from __future__ import annotations

import io

import pytest

from trainwarden_exporter.web.request import MAX_HEADERS, MAX_LINE, BadRequest, Request, read_request


def read(data: bytes) -> Request | None:
    return read_request(io.BytesIO(data))


def test_headers_are_found_by_their_name_in_lower_case_and_without_blanks() -> None:
    request = read(b"GET /a?b=%20c&b=d HTTP/1.1\r\nACCEPT: \t x, y \t\r\naccept:z\r\nX-Empty:\r\n\r\n")
    assert request == Request("GET", "/a?b=%20c&b=d", {"accept": "x, y,z", "x-empty": ""}, keeps_open=True)
    assert request.path == "/a"
    assert request.query() == [("b", " c"), ("b", "d")]


def test_lines_may_end_without_a_carriage_return() -> None:
    request = read(b"GET / HTTP/1.1\nHost: x\n\n")
    assert request is not None
    assert request.headers == {"host": "x"}


@pytest.mark.parametrize(
    ("head", "keeps_open"),
    [
        ("HTTP/1.1\r\n", True),
        ("HTTP/1.1\r\nConnection: x, Close\r\n", False),
        ("HTTP/1.0\r\n", False),
        ("HTTP/1.0\r\nConnection: keep-alive\r\n", True),
        ("HTTP/1.1\r\nContent-Length: 3\r\n", False),
        ("HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", False),
    ],
)
def test_a_connection_stays_open_as_its_client_says(head: str, keeps_open: bool) -> None:
    request = read(f"GET / {head}\r\n".encode())
    assert request is not None
    assert request.keeps_open is keeps_open


def test_the_end_of_a_connection_is_no_request() -> None:
    assert read(b"") is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400),
        (b"GET /" + b"x" * MAX_LINE + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * MAX_LINE + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as raised:
        read(data)
    assert raised.value.status == status


def test_a_line_full_of_blanks_is_read_in_one_pass() -> None:
    # Were each blank tried again for each other, the test would run out of its time.
    line = b"A: " + b"\t " * (MAX_LINE // 2 - 10) + b"\x00\r\n"
    for _ in range(MAX_HEADERS):
        with pytest.raises(BadRequest):
            read(b"GET / HTTP/1.1\r\n" + line)


def test_a_whole_address_as_proxies_send_it_is_the_path_in_it() -> None:
    for target, path in (("http://x:1/metrics?a=b", "/metrics"), ("http://x", "/"), ("http://x?a=b", "/"), ("*", "*")):
        assert Request("GET", target).path == path
    assert Request("GET", "HTTP://x/metrics?a=b").query() == [("a", "b")]
