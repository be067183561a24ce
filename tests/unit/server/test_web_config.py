"""The file of `--web.config.file`: what is wrong, or cannot be done here, is named, and never a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.offenders import assert_none, raised
from trainwarden.errors import UsageError
from trainwarden.server.web_config import ReloadingWebConfig, access_of, read_web_settings
from trainwarden_exporter.configuration.check import check

HASH = "$2y$10$" + "a" * 53
TLS = "tls_server_config:\n  cert_file: a.pem\n  key_file: /k/b.key\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "web.yml"


def test_what_the_format_has_is_taken(file: Path) -> None:
    file.write_text(
        TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
        "  client_allowed_sans: [x.example]\n  min_version: TLS13\n  max_version: TLS13\n"
        "  cipher_suites: [TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305]\n  prefer_server_cipher_suites: false\n"
        "  curve_preferences: [X25519]\n"
        "http_server_config: {http2: true, headers: {X-Content-Type-Options: nosniff}}\n"
        f"basic_auth_users: {{alice: {HASH}}}\nrate_limit: {{interval: 500ms, burst: 3}}\n"
    )
    settings = read_web_settings(file)
    assert settings.tls is not None
    assert settings.tls.cert_file == file.parent / "a.pem"
    assert settings.tls.key_file == Path("/k/b.key")
    assert settings.tls.client_ca_file == file.parent / "ca.pem"
    assert settings.tls.client_allowed_sans == {"x.example"}
    assert (settings.tls.min_version, settings.tls.max_version) == ("TLSv1_3", "TLSv1_3")
    assert settings.tls.ciphers == ("ECDHE-RSA-CHACHA20-POLY1305",)
    assert settings.tls.curve == "X25519"
    assert not settings.tls.server_preference
    assert settings.headers == {"X-Content-Type-Options": "nosniff"}
    assert settings.users == {"alice": HASH}
    assert settings.rate_limit == (0.5, 3)


@pytest.mark.parametrize(
    ("suite", "cipher"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_suites_have_the_names_that_go_gives_them(file: Path, suite: str, cipher: str) -> None:
    file.write_text(f"{TLS}  cipher_suites: [{suite}, TLS_CHACHA20_POLY1305_SHA256]\n")
    settings = read_web_settings(file).tls
    assert settings is not None
    assert settings.ciphers == (cipher,)


@pytest.mark.parametrize(
    "text", ["", "{}", "tls_server_config:\n", "rate_limit: {interval: 0}", "basic_auth_users: {}"]
)
def test_what_is_not_asked_for_is_not_done(file: Path, text: str) -> None:
    file.write_text(text)
    access = access_of(read_web_settings(file), file)
    assert (access.tls, access.users, access.rate_limit) == (None, None, None)


MISTAKES: list[tuple[str, list[str]]] = [
    ("tls_config: {}", ["line 1", "tls_config", "expected tls_server_config?"]),
    (TLS + "  cert_fil: x", ["line 4", "cert_fil", "no such key"]),
    ("tls_server_config: {cert_file: a}", ["no key_file", "expected both"]),
    (TLS + "  cert: |\n    x", ["tls_server_config.cert", "cert_file"]),
    (TLS + "  client_auth_type: Always", ["client_auth_type", "'Always'", "NoClientCert"]),
    (TLS + "  client_auth_type: RequireAnyClientCert", ["RequireAnyClientCert", "RequireAndVerifyClientCert"]),
    (TLS + "  client_ca_file: ca.pem", ["client_ca_file", "client_auth_type"]),
    (TLS + "  client_allowed_sans: [x]", ["client_allowed_sans", "RequireAndVerifyClientCert"]),
    (TLS + "  min_version: TLS10", ["min_version", "'TLS10'", "TLS12, TLS13"]),
    (TLS + "  min_version: TLS13\n  max_version: TLS12", ["max_version", "'TLS12'", "min_version"]),
    (TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", ["cipher_suites", "RC4", "a suite with ECDHE"]),
    (TLS + "  cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]", ["cipher_suites", "a suite with ECDHE"]),
    (TLS + "  cipher_suites: [ALL]", ["cipher_suites", "'ALL'", "a suite with ECDHE"]),
    (TLS + "  cipher_suites: TLS_AES_128_GCM_SHA256", ["cipher_suites", "a list"]),
    (TLS + "  curve_preferences: [X25519, CurveP256]", ["curve_preferences", "2 curves", "one curve"]),
    (TLS + "  curve_preferences: [X25519MLKEM768]", ["curve_preferences", "CurveP256"]),
    (TLS + "  prefer_server_cipher_suites: 2", ["prefer_server_cipher_suites", "true or false"]),
    ("http_server_config: {headers: {X-Powered-By: x}}", ["X-Powered-By", "no such key"]),
    ("http_server_config: {headers: {X-Frame-Options: allow}}", ["'allow'", "deny or sameorigin"]),
    ('http_server_config: {headers: {X-XSS-Protection: "1\\r\\nX: y"}}', ["one line"]),
    ("rate_limit: {interval: soon}", ["rate_limit.interval", "'soon'", "1s"]),
    ("rate_limit: {interval: 1s, burst: 0}", ["rate_limit.burst", "'0'", "above zero"]),
    (f"basic_auth_users: {{'a:b': {HASH}}}", ["a name without colon"]),
    (f"basic_auth_users: {{a: {HASH.replace('10', '20')}}}", ["basic_auth_users.a", "cost 20", "15 at most"]),
    ("basic_auth_users: [alice]", ["basic_auth_users", "a mapping"]),
]


def test_what_is_wrong_is_named_in_one_line(file: Path) -> None:
    def said(text: str) -> str:
        file.write_text(text)
        return raised(UsageError, lambda: read_web_settings(file))

    lines = {text: said(text) for text, _ in MISTAKES}
    assert_none(f"{text!r}: {line}" for text, line in lines.items() if "\n" in line)
    assert_none(
        f"{text!r}: no {word!r} in {lines[text]!r}"
        for text, words in MISTAKES
        for word in (str(file), *words)
        if word not in lines[text]
    )


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {alice: hunter2}",
        f"basic_auth_users:\n  alice: {HASH}\n  bob: hunter2 [",
        "basic_auth_users:\n  bob: 'hunter2",
        "basic_auth_users: {bob: [hunter2]}",
        f"basic_auth_users: {{{HASH}: hunter2}}",
        "hunter2",
        TLS + "  key: hunter2",
        "basic_auth_users: {bob: *hunter2}",
    ],
)
def test_no_password_is_ever_in_an_error(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_web_settings(file)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None or "hunter2" not in str(raised.value.__cause__)


def test_a_certificate_that_is_none_is_named_with_its_file(file: Path) -> None:
    file.write_text(TLS)
    with pytest.raises(UsageError) as raised:
        access_of(read_web_settings(file), file)
    assert str(file.parent / "a.pem") in str(raised.value)
    assert "no such file" in str(raised.value)


def test_a_pipe_in_place_of_a_certificate_is_not_waited_for(file: Path) -> None:
    """Every request waits for what reads the certificates."""
    certificate, pipe = file.parent / "a.pem", file.parent / "pipe"
    os.mkfifo(pipe)
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    for files in ("{cert_file: pipe, key_file: pipe}", "{cert_file: a.pem, key_file: pipe}"):
        file.write_text(f"tls_server_config: {files}\n")
        with pytest.raises(UsageError, match="pipe: is no plain file, expected a certificate"):
            access_of(read_web_settings(file), file)


def test_a_certificate_and_a_key_that_are_swapped_are_named(file: Path) -> None:
    certificate, key = file.parent / "a.pem", file.parent / "b.key"
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    key.write_text("-----BEGIN EC PRIVATE KEY-----\n")
    for files, said in (
        ("{cert_file: b.key, key_file: a.pem}", r"cert_file: .*b\.key: it holds no certificate, expected"),
        ("{cert_file: a.pem, key_file: a.pem}", r"key_file: .*a\.pem: it holds no private key, expected"),
    ):
        file.write_text(f"tls_server_config: {files}\n")
        with pytest.raises(UsageError, match=said):
            access_of(read_web_settings(file), file)


@pytest.mark.parametrize(("days", "lapse"), [(-30, "has expired at 20"), (1, ""), (20_000, "")])
def test_a_certificate_that_no_client_accepts_is_named_when_it_is_read_and_by_the_check(
    days: int, lapse: str, file: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = Authority.create(file.parent).issue("server", "127.0.0.1", days=days)
    file.write_text(f"tls_server_config: {{cert_file: {certificate.name}, key_file: {key.name}}}\n")
    ReloadingWebConfig(file)
    check([f"--web.config.file={file}"])
    warned = capsys.readouterr().err
    if lapse:
        assert f"key tls_server_config.cert_file: {certificate}: {lapse}" in warned
        assert f"{file}: key tls_server_config.cert_file: {certificate}: {lapse}" in caplog.text
    else:
        assert (warned, caplog.text) == ("", "")
