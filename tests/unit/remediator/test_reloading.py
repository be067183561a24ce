"""Policies and tokens are read again while the remediator runs, and a wrong one changes nothing."""

from __future__ import annotations

import base64
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from tests.unit.remediator.simulation import Simulation
from trainwarden.server.messages import BadRequest, Request
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.config import read_token
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.examine.choice import load_policies
from trainwarden_remediator.metrics import RemediatorCollector
from trainwarden_remediator.web.credentials import ROTATION_SECONDS, Credentials, Tokens
from trainwarden_remediator.web.reloading import Reloading, policy_files

POLICY = "policies:\n  - mode: crash\n    implementation: {class_name: AlwaysRestartPolicy, max_retries: %s}\n"


def token_in(file: Path, monotonic: Callable[[], float] = time.monotonic) -> Reloading[str]:
    read = functools.partial(read_token, "--webhook-token-file", file)
    return Reloading("token", read, lambda: [file], monotonic=monotonic)


def bearer(token: str) -> Request:
    return Request("POST", "/alertmanager/webhook", {"authorization": f"Bearer {token}"})


class TestPolicies:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        made = tmp_path / "mine.yaml"
        made.write_text(POLICY % 1)
        return made

    def loaded(self, file: Path, folder: Path | None = None) -> Reloading[object]:
        return Reloading(
            "policy", lambda: load_policies(str(file), folder, []), lambda: policy_files(str(file), folder)
        )

    def test_a_changed_file_holds_from_the_next_decision_on(self, file: Path) -> None:
        policies = load_policies(str(file), None, [])
        reloading = Reloading(
            "policy", lambda: load_policies(str(file), None, []), lambda: policy_files(str(file), None)
        )
        file.write_text(POLICY % 7)
        policies.take(reloading.current())
        assert policies.of("r", None).policy.rules["crash"].max_retries == 7
        assert reloading.is_current

    def test_a_wrong_one_is_named_with_file_and_key_once_and_the_old_one_stays(
        self, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        reloading = self.loaded(file)
        before, read = reloading.current(), reloading.last_success
        file.write_text(POLICY % "many")
        for _ in range(3):
            assert reloading.current() is before
        assert not reloading.is_current
        assert reloading.last_success == read
        assert len(caplog.records) == 1
        assert f"{file}: line 3: policies[0].implementation.max_retries: 'many': expected" in caplog.text
        assert "what held before still holds" in caplog.text
        file.write_text(POLICY % 2)
        assert reloading.current() is not before
        assert reloading.is_current

    def test_a_new_file_in_the_folder_is_seen(self, file: Path, tmp_path: Path) -> None:
        folder = tmp_path / "more"
        folder.mkdir()
        reloading = self.loaded(file, folder)
        before = reloading.current()
        assert reloading.current() is before
        (folder / "another.yaml").write_text(POLICY % 3)
        assert reloading.current() is not before

    def test_a_hangup_reads_them_again_though_no_known_file_changed(self, file: Path) -> None:
        reloading = self.loaded(file)
        before = reloading.current()
        reloading.refresh()
        assert reloading.current() is before
        reloading.refresh(force=True)
        assert reloading.current() is not before

    def test_a_wrong_file_at_the_start_is_no_start(self, file: Path) -> None:
        file.write_text("policies: 3\n")
        with pytest.raises(ConfigError):
            self.loaded(file)

    def test_the_metrics_show_whether_the_policy_is_in_use(self, file: Path, tmp_path: Path) -> None:
        reloading = self.loaded(file)
        simulation = Simulation(tmp_path / "state", two_phase=True)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(RemediatorCollector(simulation.metrics, simulation.store, None, [reloading]))
        name = "trainwarden_config_last_reload_successful"
        assert registry.get_sample_value(name, {"file": "policy"}) == 1
        file.unlink()
        reloading.refresh()
        assert registry.get_sample_value(name, {"file": "policy"}) == 0
        simulation.close()


class TestTokens:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        made = tmp_path / "token"
        made.write_text("old\n")
        return made

    def test_old_and_new_are_valid_for_a_minute_and_then_the_new_one_alone(self, file: Path) -> None:
        now = 0.0
        admits = Credentials(Tokens(token_in(file, lambda: now)).valid).admit
        assert (admits(bearer("old")), admits(bearer("new"))) == (True, False)
        file.write_text("new\n")
        assert (admits(bearer("old")), admits(bearer("new"))) == (True, True)
        now += ROTATION_SECONDS - 1
        assert (admits(bearer("old")), admits(bearer("new"))) == (True, True)
        now += 1
        assert (admits(bearer("old")), admits(bearer("new"))) == (False, True)

    def test_a_token_that_was_replaced_long_ago_is_over_although_no_request_came_since(self, file: Path) -> None:
        now = 0.0
        token = token_in(file, lambda: now)
        admits = Credentials(Tokens(token).valid).admit
        file.write_text("new\n")
        token.refresh()  # as the loop does in each round
        now += 3600
        assert (admits(bearer("old")), admits(bearer("new"))) == (False, True)

    @pytest.mark.parametrize("content", ["", "two words\n", None])
    def test_a_file_that_becomes_unusable_leaves_the_old_token(
        self, file: Path, content: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        token = token_in(file)
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        assert token.current() == "old"
        assert not token.is_current
        assert f"--webhook-token-file: {file}: " in caplog.text
        assert "old" not in [word for record in caplog.records for word in record.getMessage().split()[:3]]

    def test_a_file_that_is_renamed_into_place_is_read(self, file: Path, tmp_path: Path) -> None:
        token = token_in(file)
        newer = tmp_path / "newer"
        newer.write_text("new\n")
        newer.replace(file)
        assert token.current() == "new"

    @pytest.mark.parametrize(
        "given", ["", "old", "Bearer", "Bearer ", "Bearer olD", "Bearer old ", "bearer old,x", "Bearer \xff"]
    )
    def test_anything_else_is_refused(self, file: Path, given: str) -> None:
        credentials = Credentials(Tokens(token_in(file)).valid)
        assert not credentials.admit(Request("POST", "/", {"authorization": given}))
        assert not credentials.admit(Request("POST", "/"))


class TestUsers:
    """Users of `--web.config.file` who may send webhooks, as Alertmanager's `basic_auth` does."""

    @pytest.fixture
    def credentials(self, tmp_path: Path) -> Credentials:
        hashed = {name: bcrypt.hashpw(name.encode(), bcrypt.gensalt(4)).decode() for name in ("am", "prometheus")}
        users = ", ".join(f"{name}: {text}" for name, text in hashed.items())
        file = tmp_path / "web.yml"
        file.write_text(f"basic_auth_users: {{{users}}}\n")
        return Credentials(lambda: ["token"], ReloadingWebConfig(file), ["am"])

    def request(self, user: str, password: str) -> Request:
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        return Request("POST", "/", {"authorization": f"Basic {encoded}"}, client="127.0.0.1:9")

    def test_only_the_named_user_with_the_right_password_is_admitted(self, credentials: Credentials) -> None:
        assert credentials.admit(self.request("am", "am"))
        assert not credentials.admit(self.request("am", "prometheus"))
        assert not credentials.admit(self.request("prometheus", "prometheus")), "may read metrics, and no more"
        assert not credentials.admit(self.request("token", "token"))
        assert credentials.admit(bearer("token"))
        assert "Basic" in credentials.challenge

    def test_no_user_is_admitted_unless_named(self, credentials: Credentials, tmp_path: Path) -> None:
        unnamed = Credentials(lambda: ["token"], ReloadingWebConfig(tmp_path / "web.yml"))
        assert not unnamed.admit(self.request("am", "am"))
        assert unnamed.challenge == "Bearer"

    def test_too_many_guesses_are_answered_so_that_alertmanager_tries_again(self, tmp_path: Path) -> None:
        file = tmp_path / "web.yml"
        file.write_text(f"basic_auth_users: {{am: {bcrypt.hashpw(b'am', bcrypt.gensalt(4)).decode()}}}\n")
        config = ReloadingWebConfig(file)
        users = config.current().users
        assert users is not None
        users.close(1)
        with pytest.raises(BadRequest) as error:
            Credentials(lambda: ["token"], config, ["am"]).admit(self.request("am", "am"))
        assert error.value.status == 503


def test_a_token_is_never_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "token"
    file.write_text("s3cret-one\n")
    token = token_in(file)
    file.write_text("s3cret-two\n")
    assert token.current() == "s3cret-two"
    assert "s3cret" not in caplog.text
