"""Starting the four services: what happens when a port is lost, and what is left when one does not come up."""

from pathlib import Path

import pytest
import yaml

from trainwarden.stack.binaries import Tools
from trainwarden.stack.local_stack import LocalStack, StackSettings
from trainwarden.stack.service import ServiceFailed

_NOTHING = Tools(Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"), "nowhere")


class Stack(LocalStack):
    """Its exporter fails as it is told; the others are not started."""

    fails: list[str]

    def _start_exporter(self) -> None:
        if self.fails:
            raise ServiceFailed(self.fails.pop(0))

    def _start_alertmanager(self) -> None:
        pass

    _start_prometheus = _start_remediator = _start_alertmanager


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(StackSettings(tmp_path, tmp_path, "http://127.0.0.1:9/"), _NOTHING)


def test_a_port_that_somebody_else_took_meanwhile_is_replaced_by_another(stack: Stack) -> None:
    before = stack.exporter_url
    stack.fails = ["exporter ended with status 2: 127.0.0.1:1: Address already in use"]
    stack.start()
    assert stack.exporter_url != before


def test_a_port_that_is_lost_again_and_again_is_an_error(stack: Stack) -> None:
    stack.fails = ["listen tcp: bind: address already in use"] * 3
    with pytest.raises(ServiceFailed, match="already in use"):
        stack.start()


def test_any_other_failure_is_reported_at_once(stack: Stack) -> None:
    stack.fails = ["exporter ended with status 2: no such folder", "not reached"]
    with pytest.raises(ServiceFailed, match="no such folder"):
        stack.start()
    assert stack.fails == ["not reached"]


def test_the_secrets_are_for_their_owner_alone_and_the_shipped_address_is_replaced(
    stack: Stack, tmp_path: Path
) -> None:
    stack.fails = []
    stack.start()
    secrets = tmp_path / "alertmanager" / "secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {
        "slack_url": 0o600,
        "remediator_token": 0o600,
    }
    text = (tmp_path / "alertmanager" / "alertmanager.yml").read_text()
    assert stack.remediator_url in text
    assert "//remediator" not in text


def test_messages_lead_to_no_grafana_where_none_runs(stack: Stack, tmp_path: Path) -> None:
    stack.fails = []
    stack.start()
    rules = [yaml.safe_load(path.read_text()) for path in (tmp_path / "prometheus/rules/alerts").glob("*.yml")]
    alerts = [rule for file in rules for group in file["groups"] for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 50
    assert all("runbook_url" in each["annotations"] for each in alerts)
    assert not any("dashboard" in each["annotations"] for each in alerts)
