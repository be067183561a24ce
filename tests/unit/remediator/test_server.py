"""Clients that do not play fair: none of them keeps the others from being served."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from tests.certificates import Authority
from tests.unit.remediator.simulated_cluster import FakeClock
from trainwarden.server.limits import Limits
from trainwarden.server.server import HttpServer
from trainwarden.server.web_config import ReloadingWebConfig, WebConfig
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.web.credentials import Credentials
from trainwarden_remediator.web.server import RemediatorPages


@pytest.fixture
def connection_seconds() -> float:
    """For how long a client may keep the server."""
    return 60.0


@pytest.fixture
def web_config() -> WebConfig | None:
    """The file of `--web.config.file`, read."""
    return None


@pytest.fixture
def server(tmp_path: Path, connection_seconds: float, web_config: WebConfig | None) -> Iterator[HttpServer]:
    engine = open_database(tmp_path)
    clock = FakeClock()
    store = Store(engine, clock)
    pages = RemediatorPages(
        store,
        Metrics(),
        CollectorRegistry(),
        clock,
        Credentials(lambda: ["secret"]),
        lambda: None,
        lambda: False,
    )
    seconds = connection_seconds
    limits = Limits(head_seconds=seconds, body_seconds=seconds)
    with pages.server(("127.0.0.1", 0), web_config, limits) as made:
        made.start()
        yield made
    engine.dispose()


def ask(server: HttpServer, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


@pytest.mark.parametrize("connection_seconds", [0.3])
@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /alertmanager/webhook HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: 9\r\n\r\n{"],
    ids=["no request", "half a body"],
)
def test_a_client_that_never_finishes_is_cut_off(server: HttpServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while slow.recv(4096):
                pass  # ends only when the server has closed the connection


@pytest.mark.parametrize("connection_seconds", [0.3])
def test_a_client_that_trickles_is_cut_off_however_busy_it_is(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        slow.settimeout(0.05)
        with pytest.raises(ConnectionError):
            while True:
                slow.sendall(b"X-More: 1\r\n")
                with contextlib.suppress(TimeoutError):
                    if slow.recv(4096) == b"":
                        raise ConnectionError


def test_others_are_served_while_many_connections_idle(server: HttpServer) -> None:
    with contextlib.ExitStack() as idle:
        for _ in range(100):
            idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert ask(server, "GET", "/-/healthy").status == 200


def webhook(server: HttpServer, body: bytes, token: str = "secret", timeout: float = 30) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        connection.request("POST", "/alertmanager/webhook", body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def hold(server: HttpServer, sent: bytes, count: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Open connections that send this and nothing more.

    The server may reset any of them, also while they send: it owes idle clients nothing.
    """
    opened = []
    for _ in range(count):
        with contextlib.suppress(OSError):  # a later one has cost it its place
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            one.sendall(sent)
            opened.append(one)
    return opened


_HEAD = b"POST /alertmanager/webhook HTTP/1.1\r\nHost: r\r\nContent-Length: 900\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /alertmanager", _HEAD + b"\r\n", _HEAD + b"Authorization: Bearer wrong\r\n\r\n{"],
    ids=["nothing", "half a head", "a head without a token", "a head with a wrong one"],
)
@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.nightly)])
def test_clients_without_a_token_keep_no_webhook_out(server: HttpServer, sent: bytes, count: int) -> None:
    """Each of them may wait a minute here; the webhook is answered before any of them is over its time."""
    with contextlib.ExitStack() as stack:
        assert len(hold(server, sent, count, stack)) > count / 2
        assert webhook(server, b'{"version": "4", "alerts": []}') == (200, "OK\n")


def test_wrong_tokens_cannot_fill_the_log(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        assert webhook(server, b"{}", token="guess")[0] == 401
    lines = [each.getMessage() for each in caplog.records if each.name == "trainwarden_remediator.web.server"]
    assert len(lines) == 1
    assert lines[0].startswith("a webhook from 127.0.0.1:")
    assert "guess" not in lines[0]


def test_a_webhook_of_hostile_text_is_stored_and_shown_as_it_was(server: HttpServer) -> None:
    hostile = "\x00\n$(touch /tmp/x)`id`<!channel><https://x|y>'; DROP TABLE alerts;-- \u202e"
    labels = {"alertname": hostile, "run_id": hostile, "remediate": "true", hostile: hostile}
    body = {"version": "4", "alerts": [{"status": "firing", "labels": labels, "startsAt": "2027-01-01T00:00:00Z"}]}
    assert webhook(server, json.dumps(body).encode())[0] == 200
    pages: RemediatorPages = server._handler.__self__  # type: ignore[attr-defined]  # whose method it is
    [pending] = pages.store.pending()
    assert dict(pending.alert.labels) == labels
    assert pending.alert.run_id is None, "no run has such an id"
    assert (pending.alert.label("alertname") or "").isprintable()


def _nested(depth: int) -> bytes:
    return b'{"version": "4", "alerts": [], "x": ' + b"[" * depth + b"]" * depth + b"}"


def _labelled(count: int) -> bytes:
    labels = {f"label_{number}": "" for number in range(count)} | {"remediate": "true"}
    alert = {"status": "firing", "labels": labels, "startsAt": "2027-01-01T00:00:00Z"}
    return json.dumps({"version": "4", "alerts": [alert]}).encode()


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b" " * (10 << 20), {413}),
        (_labelled(100_000), {413}),
        (_labelled(2_000), {422}),
        (_nested(100_000), {400}),
        (b'{"version": "4", "alerts": [' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}", {400}),
        (b'{"version": "4", "alerts": [NaN, Infinity]}', {422}),
        (b'{"version": "4", "version": "3", "alerts": []}', {422}),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 100, {400}),
        (b"\xed\xa0\x80", {400}),
    ],
    ids=[
        "10 MiB", "100,000 labels", "2,000 labels", "deep", "deep alerts", "NaN", "a key twice", "gzip", "no UTF-8",
    ],
)  # fmt: skip
def test_what_is_too_much_or_no_delivery_is_refused_and_the_next_one_is_taken(
    server: HttpServer, body: bytes, statuses: set[int]
) -> None:
    try:
        assert webhook(server, body)[0] in statuses
    except ConnectionError:
        assert len(body) > 1 << 20, "the answer to a large body may be lost with its connection"
    assert webhook(server, b'{"version": "4", "alerts": []}')[0] == 200


def test_readiness_states_whether_the_loop_turns(server: HttpServer) -> None:
    assert ask(server, "GET", "/-/ready").status == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/alertmanager/webhook", 405),
        ("GET", "/elsewhere", 404),
        ("POST", "/elsewhere", 404),
        ("DELETE", "/api/v1/incidents", 405),
        ("GET", "/api/v1/incidents", 401),
    ],
)
def test_other_requests_get_an_error_status(server: HttpServer, method: str, path: str, status: int) -> None:
    assert ask(server, method, path).status == status


def test_a_webhook_without_a_length_is_refused(server: HttpServer) -> None:
    assert ask(server, "GET", "/-/healthy").status == 200
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", "/alertmanager/webhook")
    connection.putheader("Authorization", "Bearer secret")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


WEBHOOK = {"version": "4", "alerts": []}


class TestWithTlsAndUsers:
    """A listener that `--web.config.file` gave TLS and a user."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        made = Authority.create(tmp_path)
        made.issue("server", "localhost")
        return made

    @pytest.fixture
    def web_config(self, authority: Authority) -> WebConfig | None:
        file = authority.folder / "web.yml"
        hashed = bcrypt.hashpw(b"secret word", bcrypt.gensalt(4)).decode()
        tls = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        file.write_text(f"{tls}basic_auth_users: {{prometheus: {hashed}}}\n")
        return ReloadingWebConfig(file)

    def ask(
        self, server: HttpServer, authority: Authority, method: str, path: str, authorization: str, body: str = ""
    ) -> http.client.HTTPResponse:
        context = ssl.create_default_context(cafile=authority.file)
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
        try:
            connection.request(method, path, body, {"Authorization": authorization})
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    @pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready", "/elsewhere"])
    def test_pages_ask_for_a_user_and_take_no_token(self, server: HttpServer, authority: Authority, path: str) -> None:
        asked = self.ask(server, authority, "GET", path, "Bearer secret")
        assert (asked.status, asked.headers["WWW-Authenticate"][:6]) == (401, "Basic ")
        user = "Basic " + base64.b64encode(b"prometheus:secret word").decode()
        assert self.ask(server, authority, "GET", path, user).status in {200, 503, 404}

    def test_the_webhook_and_the_api_ask_for_the_token_and_take_no_user(
        self, server: HttpServer, authority: Authority
    ) -> None:
        user = "Basic " + base64.b64encode(b"prometheus:secret word").decode()
        body = json.dumps(WEBHOOK)
        for method, path in (("POST", "/alertmanager/webhook"), ("GET", "/api/v1/incidents")):
            refused = self.ask(server, authority, method, path, user, body)
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert self.ask(server, authority, method, path, "Bearer secret", body).status == 200

    def test_a_client_without_tls_is_refused(self, server: HttpServer) -> None:
        assert ask(server, "GET", "/-/healthy").status == 400


class TestWithClientCertificates:
    """A listener that `--web.config.file` lets only clients with a certificate for one name connect to."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        made = Authority.create(tmp_path)
        for name in ("server", "alertmanager", "another"):
            made.issue(name, "localhost" if name == "server" else f"{name}.example")
        return made

    @pytest.fixture
    def web_config(self, authority: Authority) -> WebConfig | None:
        file = authority.folder / "web.yml"
        file.write_text(
            "tls_server_config:\n"
            "  cert_file: server.pem\n"
            "  key_file: server.key\n"
            "  client_auth_type: RequireAndVerifyClientCert\n"
            f"  client_ca_file: {authority.file}\n"
            "  client_allowed_sans: [alertmanager.example]\n"
        )
        return ReloadingWebConfig(file)

    def send(self, server: HttpServer, authority: Authority, name: str | None, token: str) -> int:
        context = ssl.create_default_context(cafile=authority.file)
        if name is not None:
            context.load_cert_chain(authority.folder / f"{name}.pem", authority.folder / f"{name}.key")
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
        try:
            connection.request(
                "POST", "/alertmanager/webhook", json.dumps(WEBHOOK), {"Authorization": f"Bearer {token}"}
            )
            return connection.getresponse().status
        finally:
            connection.close()

    def test_the_webhook_needs_the_certificate_and_the_token(self, server: HttpServer, authority: Authority) -> None:
        assert self.send(server, authority, "alertmanager", "secret") == 200
        assert self.send(server, authority, "alertmanager", "wrong") == 401
        for name in ("another", None):
            with pytest.raises((OSError, http.client.HTTPException)):
                self.send(server, authority, name, "secret")
