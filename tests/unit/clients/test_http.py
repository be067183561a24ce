"""One deadline for the whole exchange, a size limit, no proxy, no redirect, no retry, and credentials from files."""

from __future__ import annotations

import ast
import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cases import cases
from tests.certificates import Authority
from trainwarden.clients import http as http_module
from trainwarden.clients.http import (
    CONNECTION,
    CREDENTIALS,
    MALFORMED,
    TIMEOUT,
    TOO_LARGE,
    HttpAuth,
    HttpClient,
    HttpError,
    TlsFiles,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def raw_server(*answer: bytes, pause: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """Write `answer` piece by piece to whoever connects, `pause` seconds between them; the requests are returned."""
    requests: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with closing(connection):
                requests.append(connection.recv(65536))
                try:
                    for piece in answer:
                        connection.sendall(piece)
                        time.sleep(pause)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)


def failure(ask: Callable[[], object]) -> HttpError:
    with pytest.raises(HttpError) as raised:
        ask()
    return raised.value


@cases(
    ("answer", "reason"),
    [
        ([b"220 mail.example ESMTP\r\n"], CONNECTION),
        ([b""], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\n"], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Le"], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1, 2"], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1, "], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], CONNECTION),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 300], TOO_LARGE),
        ([b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000], CONNECTION),
    ],
)
def test_an_incomplete_answer_is_an_error_with_its_reason(answer: list[bytes], reason: str) -> None:
    with raw_server(*answer) as (url, requests):
        error = failure(lambda: HttpClient(url, 30, max_body=200).get("/a"))
    assert error.reason == reason
    assert str(error).startswith(f"{url}/a: {reason}: ")
    assert len(requests) == 1, "it is not tried again"


@cases(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", *[b" "] * 400],
        [b"H", b"T", *[b"T"] * 400],
        [b"HTTP/1.1 200 OK\r\nX-Slow: ", *[b"x"] * 400],
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 400,
    ],
    ids=["body", "status", "header", "continue"],
)
def test_a_server_that_sends_a_byte_now_and_then_does_not_extend_the_deadline(answer: list[bytes]) -> None:
    with raw_server(*answer, pause=0.05) as (url, _):
        begun = time.monotonic()
        assert failure(lambda: HttpClient(url, 0.5).get("/")).reason == TIMEOUT
        assert time.monotonic() - begun < 15


def test_a_server_that_does_not_shake_hands_is_given_up() -> None:
    with raw_server(pause=0) as (url, _), socket.create_server(("127.0.0.1", 0)) as silent:
        assert url
        https = f"https://127.0.0.1:{silent.getsockname()[1]}"
        assert failure(lambda: HttpClient(https, 0.3).get("/")).reason == TIMEOUT


def test_a_service_that_does_not_listen_is_an_error_that_shows_it() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert str(failure(lambda: HttpClient(url, 30).get("/x"))) == f"{url}/x: connection: Connection refused"


def test_a_name_with_several_addresses_is_tried_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(OK) as (url, _):
        port = int(url.rpartition(":")[2])
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert HttpClient(f"http://service:{port}", 30).get("/").body == b"ok"


def test_a_redirect_is_an_answer_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with raw_server(OK) as (elsewhere, asked_elsewhere):
        moved = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n".encode()
        with raw_server(moved) as (url, requests):
            response = HttpClient(url, 30, auth=HttpAuth(token="t")).get("/")
    assert (response.status, response.body) == (302, b"")
    assert (len(requests), asked_elsewhere) == (1, [])


def test_parameters_are_encoded_and_the_path_of_the_url_is_kept() -> None:
    with raw_server(OK) as (url, requests):
        HttpClient(f"{url}/prometheus/", 30).get("/api", {"filter": ['a="b"', "c=~d"], "x": "&"})
        HttpClient(url, 30).get("")
    assert requests[0].startswith(b"GET /prometheus/api?filter=a%3D%22b%22&filter=c%3D~d&x=%26 HTTP/1.1\r\n")
    assert requests[1].startswith(b"GET / HTTP/1.1\r\n")
    assert f"\r\nHost: {url.removeprefix('http://')}\r\n".encode() in requests[0]


def test_a_body_that_is_no_json_is_an_error_of_the_reader_alone() -> None:
    with raw_server(OK) as (url, _):
        response = HttpClient(url, 30).get("/")
    error = failure(response.json)
    assert (error.reason, str(error)) == (MALFORMED, "malformed: status 200, expected JSON")


def test_tokens_and_passwords_are_read_for_each_request(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with raw_server(OK) as (url, requests):
        bearer = HttpClient(url, 30, auth=HttpAuth(token_file=secret))
        basic = HttpClient(url, 30, auth=HttpAuth(username="me", password_file=secret))
        for content in ("t0k3n\n", "n3w"):
            secret.write_text(content)
            bearer.get("/")
            basic.get("/")
    sent = [line for request in requests for line in request.decode().splitlines() if line.startswith("Authorization")]
    basics = [base64.b64encode(f"me:{password}".encode()).decode() for password in ("t0k3n", "n3w")]
    expected = ["Bearer t0k3n", f"Basic {basics[0]}", "Bearer n3w", f"Basic {basics[1]}"]
    assert sent == [f"Authorization: {each}" for each in expected]


@cases("content", [b"", b"\n", b"two words", b"a\r\nX-Evil: b", b"\xff\xfe", b"x" * 70_000])
def test_a_file_without_a_token_is_named_without_its_content(tmp_path: Path, content: bytes) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with raw_server(OK) as (url, requests):
        client = HttpClient(url, 30, auth=HttpAuth(token_file=token))
        for ask in (lambda: client.get("/"), client.check):
            error = failure(ask)
            assert (error.reason, str(error)) == (CREDENTIALS, f"{token}: expected one token on one line")
        token.unlink()
        assert str(failure(client.check)) == f"{token}: No such file or directory"
        os.mkfifo(token)
        assert str(failure(client.check)) == f"{token}: is no plain file"
    assert requests == []


@contextmanager
def tls_server(authority: Authority) -> Iterator[str]:
    """A server that asks for a client certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a handshake that fails

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", "127.0.0.1"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_client_certificate_opens_and_a_replaced_one_is_read_again(tmp_path: Path) -> None:
    authority, stranger = Authority.create(tmp_path), Authority.create(tmp_path, "stranger")
    files = TlsFiles(authority.file, *authority.issue("client"))
    with tls_server(authority) as url:
        client = HttpClient(url, 30, tls=files)
        client.check()
        assert client.get("/").status == 200
        assert failure(lambda: HttpClient(url, 30, tls=TlsFiles(authority.file)).get("/")).reason == CONNECTION
        untrusted = failure(lambda: HttpClient(url, 30, tls=TlsFiles(stranger.file)).get("/"))
        assert untrusted.reason == CONNECTION
        assert "certificate" in str(untrusted)
        for target, source in zip(files[1:], stranger.issue("other"), strict=True):
            assert target is not None
            source.replace(target)
        assert failure(lambda: client.get("/")).reason == CONNECTION
        authority.issue("client")
        assert client.get("/").status == 200


def test_files_of_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    certificate, key = authority.issue("client")
    _, other_key = authority.issue("other")
    noise = tmp_path / "noise"
    noise.write_text("no PEM")
    for files, named in (
        (TlsFiles(tmp_path / "none"), f"{tmp_path / 'none'}: No such file or directory; expected PEM"),
        (TlsFiles(noise), f"{noise}: "),
        (TlsFiles(None, certificate, other_key), f"{certificate} and {other_key}: "),
        (TlsFiles(None, certificate, tmp_path / "none"), f"{certificate} and {tmp_path / 'none'}: "),
        (TlsFiles(None, noise, key), f"{noise} and {key}: "),
    ):
        error = failure(HttpClient("https://127.0.0.1:1", 30, tls=files).check)
        assert error.reason == CREDENTIALS
        assert str(error).startswith(named)


@pytest.mark.process
def test_the_source_of_the_file_is_a_program_of_its_own() -> None:
    """A head pod gets it as an argument, whose length Linux limits to 128 KiB; its Python may be 3.8."""
    source = Path(http_module.__file__).read_text()
    assert len(source) < 100_000
    ast.parse(source, feature_version=(3, 8))
    question = {"url": "", "paths": ["/a"], "token": None, "token_variables": ["RAY", "RAY_PATH"], "timeout": 30}
    with raw_server(OK) as (url, requests):
        asked = json.dumps({**question, "url": url, "max_body": 100})
        argv = [sys.executable, "-I", "-S", "-c", source]  # -S: a head pod has no trainwarden
        done = subprocess.run(argv, input=asked, env={"RAY": "t0k3n"}, capture_output=True, text=True, check=True)
    assert done.stdout == '[200, "", 2]\nok'
    assert b"\r\nAuthorization: Bearer t0k3n\r\n" in requests[0]
