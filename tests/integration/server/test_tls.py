"""TLS as the file of `--web.config.file` asks for it, with real handshakes."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.server.conftest import Served, read_all
from trainwarden.server.limits import Limits
from trainwarden.server.web_config import ReloadingWebConfig

SERVER = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
WITH_CLIENTS = SERVER + "  client_ca_file: authority.pem\n  client_auth_type: "


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.create(tmp_path)
    made.issue("server", "localhost", "127.0.0.1")
    return made


@pytest.fixture
def secured(serve: Callable[..., Served], authority: Authority) -> Callable[..., Served]:
    """Starts a server whose file holds a text."""

    def start(text: str, **options: Limits) -> Served:
        file = authority.folder / "web.yml"
        file.write_text(text)
        return serve(web_config=ReloadingWebConfig(file), **options)

    return start


def client(authority: Authority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def refused(site: Served, context: ssl.SSLContext) -> bool:
    """Whether the server breaks off; with TLS 1.3 a client learns of it only when it reads."""
    try:
        site.ask("/-/healthy", tls=context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_pages_come_over_tls_and_relative_files_are_beside_the_one_that_names_them(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured(SERVER)
    assert site.ask("/-/healthy", tls=client(authority))[1] == b"GET /-/healthy\n"


def test_a_client_that_sends_plain_http_gets_an_answer_that_names_https(secured: Callable[..., Served]) -> None:
    response, body = secured(SERVER).ask("/metrics")
    assert response.status == 400
    assert b"HTTPS" in body


@pytest.mark.parametrize(
    ("auth_type", "admitted"),
    [
        ("NoClientCert", {"none", "stranger", "known"}),
        ("RequestClientCert", {"none", "stranger", "known"}),
        ("VerifyClientCertIfGiven", {"none", "known"}),
        ("RequireAndVerifyClientCert", {"known"}),
    ],
)
def test_clients_are_admitted_as_their_certificates_are_asked_for(
    secured: Callable[..., Served], authority: Authority, auth_type: str, admitted: set[str]
) -> None:
    verified = auth_type.startswith(("Verify", "RequireAnd"))
    site = secured((WITH_CLIENTS if verified else SERVER + "  client_auth_type: ") + auth_type)
    known = authority.issue("known", "known.example")
    (authority.folder / "other").mkdir()
    stranger = Authority.create(authority.folder / "other", "stranger").issue("unknown", "known.example")
    clients = {"none": None, "stranger": stranger, "known": known}
    assert {name for name, shown in clients.items() if not refused(site, client(authority, shown))} == admitted


def test_of_the_clients_that_are_known_those_with_an_allowed_name_are_admitted(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured(WITH_CLIENTS + "RequireAndVerifyClientCert\n  client_allowed_sans: [prometheus.example, 10.0.0.1]\n")
    assert not refused(site, client(authority, authority.issue("a", "prometheus.example", "x.example")))
    assert not refused(site, client(authority, authority.issue("b", "10.0.0.1")))
    assert refused(site, client(authority, authority.issue("c", "other.example")))


def test_versions_suites_and_curve_are_those_of_the_file(secured: Callable[..., Served], authority: Authority) -> None:
    site = secured(
        SERVER + "  max_version: TLS12\n  curve_preferences: [CurveP384]\n"
        "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384]\n"
    )
    with client(authority).wrap_socket(site.connect(), server_hostname="localhost") as connection:
        assert connection.version() == "TLSv1.2"
        assert (connection.cipher() or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    newer = client(authority)
    newer.minimum_version = ssl.TLSVersion.TLSv1_3
    assert refused(site, newer)


def test_without_a_suite_for_it_the_older_version_is_not_spoken(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured(SERVER + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n")
    older = client(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(site, older)
    assert not refused(site, client(authority))


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_handshake_that_is_never_completed_is_cut_off_and_holds_up_no_other(
    secured: Callable[..., Served], authority: Authority, sent: bytes
) -> None:
    site = secured(SERVER, limits=Limits(head_seconds=2.0))
    with site.connect() as idle:
        idle.sendall(sent)
        assert not refused(site, client(authority))
        with contextlib.suppress(ConnectionError):
            assert read_all(idle) == b""


def test_a_client_that_stops_in_the_middle_of_a_request_is_cut_off_over_tls_too(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured(SERVER, limits=Limits(head_seconds=2.0))
    with client(authority).wrap_socket(site.connect(), server_hostname="localhost") as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert read_all(connection) == b""


def test_a_renewed_certificate_is_used_by_the_next_connection(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured(SERVER)
    before = shown_names(site, authority)
    authority.issue("server", "localhost", "renewed.example")
    assert ("DNS", "renewed.example") in shown_names(site, authority)
    assert ("DNS", "renewed.example") not in before


def test_a_certificate_that_cannot_be_read_leaves_the_old_one_and_is_shown(
    secured: Callable[..., Served], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    site = secured(SERVER)
    good = (authority.folder / "server.pem").read_bytes()
    (authority.folder / "server.pem").write_text("no certificate")
    for _ in range(3):
        assert not refused(site, client(authority))
    assert not is_current(site)
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "server.pem" in line
    assert "expected" in line
    (authority.folder / "server.pem").write_bytes(good)
    assert not refused(site, client(authority))
    assert is_current(site)


@pytest.mark.parametrize("left", ["", SERVER])
def test_a_file_that_no_longer_asks_for_tls_or_certificates_of_clients_opens_the_page_to_nobody(
    secured: Callable[..., Served], authority: Authority, left: str
) -> None:
    site = secured(SERVER + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.pem\n")
    assert refused(site, client(authority))
    (authority.folder / "web.yml").write_text(left)
    assert refused(site, client(authority))
    assert not is_current(site)


def test_tls_may_be_switched_on_and_what_is_then_missing_is_taken_once_it_is_there(
    secured: Callable[..., Served], authority: Authority
) -> None:
    site = secured("")
    assert site.ask("/-/healthy")[0].status == 200
    file = authority.folder / "web.yml"
    file.write_text(SERVER.replace("server.", "later."))
    assert site.ask("/-/healthy")[0].status == 200
    assert not is_current(site)
    authority.issue("later", "localhost")
    assert not refused(site, client(authority))
    assert is_current(site)


def shown_names(site: Served, authority: Authority) -> tuple[tuple[str, str], ...]:
    """The names in the certificate that the server shows now."""
    with client(authority).wrap_socket(site.connect(), server_hostname="localhost") as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    return certificate["subjectAltName"]  # type: ignore[return-value]  # pairs, in this key


def is_current(served: Served) -> bool:
    config = served.server.web_config
    assert isinstance(config, ReloadingWebConfig)
    config.current()
    return config.is_current
