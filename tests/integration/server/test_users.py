"""Users, headers and limits as the file of `--web.config.file` asks for them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from tests.integration.server.conftest import Served
from trainwarden.server.basic_auth import BasicAuthUsers
from trainwarden.server.web_config import RateLimit, ReloadingWebConfig


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {hashed('secret:word')}\n  bob: {hashed('other')}\n")
    return path


@pytest.fixture
def site(serve: Callable[..., Served], file: Path) -> Served:
    return serve(web_config=ReloadingWebConfig(file))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/nope"])
def test_no_page_is_seen_without_a_password(site: Served, path: str) -> None:
    response, body = site.ask(path)
    assert (response.status, body) == (401, b"unauthorized\n")
    assert response.headers["WWW-Authenticate"].startswith("Basic realm=")


def test_the_password_lets_in_and_nothing_else_does(site: Served) -> None:
    for good in (basic("alice", "secret:word"), basic("bob", "other"), basic("bob", "other").replace("Basic", "basic")):
        assert site.ask("/-/healthy", Authorization=good)[0].status == 200
    wrong = [
        basic("alice", "other"), basic("alice", ""), basic("", ""), basic("eve", "other"), basic("alice", "x" * 100),
        "Basic !!!", "Basic", "Basic " + base64.b64encode(b"\xff\xfe").decode(), "Bearer abc",
        "Basic " + base64.b64encode(b"alice").decode(),
    ]  # fmt: skip
    for header in wrong:
        assert site.ask("/-/healthy", Authorization=header)[0].status == 401, header
    assert site.ask("/metrics")[0].status == 401


def test_the_hash_is_computed_once_for_each_password_and_for_unknown_users_too(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[bytes] = []
    real = bcrypt.checkpw

    def counted(password: bytes, text: bytes) -> bool:
        computed.append(text)
        return real(password, text)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    for _ in range(3):
        assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
    assert len(computed) == 1
    for guess in ("one", "other", "one"):
        for user in ("alice", "nobody"):
            assert site.ask("/-/healthy", Authorization=basic(user, guess))[0].status == 401
    # Who is not there costs as much as who is.
    assert len(computed) == 5
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
    assert len(computed) == 5


def test_an_unknown_user_takes_as_long_as_some_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it always the costliest hash, who is answered faster would be known."""
    computed: list[bytes] = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda _, text: computed.append(text))
    hashes = {f"user{number}": f"$2b$04${number}{'a' * 52}" for number in range(4)}
    users = BasicAuthUsers(hashes)
    for number in range(200):
        assert not users.admit(basic(f"nobody{number}", "guess"))
    assert set(computed) == {text.encode() for text in hashes.values()}
    computed.clear()
    for number in range(5):
        assert not users.admit(basic("nobody", f"guess{number}"))
    assert len(set(computed)) == 1


def test_what_was_checked_is_kept_when_something_else_of_the_file_changes(
    site: Served, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
    file.write_text(file.read_text() + "rate_limit: {interval: 1ms, burst: 100}\n")
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: pytest.fail("it is remembered"))
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200


def test_a_password_that_was_changed_no_longer_lets_in(site: Served, file: Path) -> None:
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
    file.write_text(f"basic_auth_users:\n  alice: {hashed('a new one')}\n")
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 401
    assert site.ask("/-/healthy", Authorization=basic("alice", "a new one"))[0].status == 200


def test_a_file_that_becomes_wrong_keeps_the_users_of_before(site: Served, file: Path) -> None:
    for text in ("basic_auth_users: [", "basic_auth_user: {}", "basic_auth_users: {alice: plain}"):
        file.write_text(text)
        assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
        assert site.ask("/-/healthy")[0].status == 401
    file.unlink()
    assert site.ask("/-/healthy")[0].status == 401


@pytest.mark.parametrize("text", ["", "rate_limit: {interval: 1ms, burst: 100}\n", "basic_auth_users:\n"])
def test_a_file_that_is_empty_or_half_written_opens_the_page_to_nobody(site: Served, file: Path, text: str) -> None:
    config, before = site.server.web_config, file.read_text()
    assert isinstance(config, ReloadingWebConfig)
    file.write_text(text)
    assert site.ask("/-/healthy")[0].status == 401
    assert site.ask("/-/healthy", Authorization=basic("alice", "secret:word"))[0].status == 200
    assert not config.is_current
    file.write_text(before + "rate_limit: {interval: 1ms, burst: 100}\n")
    assert site.ask("/-/healthy", Authorization=basic("bob", "other"))[0].status == 200
    assert config.is_current


def test_headers_of_the_file_are_on_every_answer(serve: Callable[..., Served], tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n"
        "    Strict-Transport-Security: max-age=31536000\n    X-XSS-Protection:\n"
    )
    site = serve(web_config=ReloadingWebConfig(file))
    for path in ("/", "/nope"):
        headers = site.ask(path)[0].headers
        assert headers["X-Frame-Options"] == "deny"
        assert headers["Strict-Transport-Security"] == "max-age=31536000"
        assert "X-XSS-Protection" not in headers


def test_requests_beyond_the_limit_are_refused(serve: Callable[..., Served], tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("rate_limit:\n  interval: 1h\n  burst: 2\n")
    site = serve(web_config=ReloadingWebConfig(file))
    assert [site.ask("/-/healthy")[0].status for _ in range(4)] == [200, 200, 429, 429]


def test_a_limit_lets_one_more_through_in_each_interval() -> None:
    now = 0.0
    limit = RateLimit(10.0, 2, lambda: now)
    assert [limit.admits() for _ in range(3)] == [True, True, False]
    now = 9.0
    assert not limit.admits()
    now = 10.5
    assert [limit.admits() for _ in range(2)] == [True, False]
    now = 1000.0
    assert [limit.admits() for _ in range(3)] == [True, True, False]
