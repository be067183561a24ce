"""Credentials and certificates for Prometheus and Alertmanager: taken, or a mistake named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.offenders import assert_none, raised
from tests.unit.clients.scripted import Scripted
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.web.http_config import http_client


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


def write(folder: Path, text: str) -> Path:
    file = folder / "http.yml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("", None),
        ("authorization: {credentials: t0k3n}", "Bearer t0k3n"),
        ("authorization: {type: bearer, credentials_file: secret}", "Bearer fr0mfile"),
        ("basic_auth: {username: me, password: a b}", "Basic bWU6YSBi"),
        ("basic_auth: {username: me, password_file: secret}", "Basic bWU6ZnIwbWZpbGU="),
    ],
)
def test_credentials_are_sent(scripted: Scripted, tmp_path: Path, text: str, header: str | None) -> None:
    (tmp_path / "secret").write_text("fr0mfile\n")
    http_client("--x", scripted.url, write(tmp_path, text), 30).get("/")
    assert scripted.headers.get("Authorization") == header
    scripted.close()


MISTAKES = [
    ("a: hunter2", "line 1: key a: there is no such key, expected one of authorization, basic_auth, tls_config"),
    ("authorization: hunter2", "line 1: key authorization: a text, expected a mapping of keys"),
    ("authorization: {}", "key authorization: neither, expected credentials or credentials_file"),
    ("authorization: {credentials: hunter2 x}", "key authorization.credentials: a token, expected printable ASCII"),
    ("authorization: {credentials: [hunter2]}", "key authorization.credentials: no text, expected a text"),
    ("authorization: {type: Digest, credentials: hunter2}", "key authorization.type: 'Digest', expected Bearer"),
    ("authorization: {credentials: hunter2, credentials_file: secret}", "key authorization: both, expected"),
    ("authorization: {credentials_file: none}", "/none: No such file or directory"),
    ("authorization: {credentials_file: noise}", "/noise: expected one token on one line"),
    ("basic_auth: {password: hunter2}", "line 1: key basic_auth: no username, expected username"),
    ("basic_auth: {username: 'a:b', password: hunter2}", "key basic_auth.username: 'a:b', expected a name without"),
    ("basic_auth: {username: a}", "key basic_auth: neither, expected password or password_file"),
    ("basic_auth: {username: a, password_file: none}", "/none: No such file or directory"),
    (
        "authorization: {credentials: hunter2}\nbasic_auth: {username: a, password: hunter2}",
        "line 2: key basic_auth: a second way to authenticate, expected only one",
    ),
    ("tls_config: {ca_file: none}", "/none: No such file or directory; expected PEM"),
    ("tls_config: {cert_file: noise}", "key tls_config: one of them, expected both cert_file and key_file"),
    ("tls_config: {insecure_skip_verify: true}", "there is no such key, expected one of ca_file, cert_file"),
]


def test_a_mistake_is_named_with_its_line_and_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "noise").write_text("two words")

    def said(text: str) -> str:
        file = write(tmp_path, text)
        return raised(ConfigError, lambda: http_client("--x-http-config-file", "https://prometheus", file, 30))

    found = [(text, problem, said(text)) for text, problem in MISTAKES]
    assert_none(
        f"{text}: {message!r}"
        for text, problem, message in found
        if not message.startswith("--x-http-config-file: ") or problem not in message or "hunter2" in message
    )


def test_certificates_for_a_service_without_tls_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, f"tls_config: {{ca_file: {Authority.create(tmp_path).file}}}")
    with pytest.raises(ConfigError, match="expected a URL that begins with https://"):
        http_client("--x", "http://prometheus", file, 30)
    http_client("--x", "https://prometheus", file, 30)
