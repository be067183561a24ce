"""`trainwarden doctor` about a real Alertmanager: its routes as it shows them, and what it could not deliver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alertmanager.running import Alertmanager, firing
from tests.alertmanager.running import alertmanager as running_alertmanager
from tests.waiting import wait_until
from trainwarden.doctor import Finding
from trainwarden.doctor.services import check_alertmanager
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

STALLED = firing(
    "TrainRunStalled", cluster="c1", run_id="r1", attempt="0", severity="critical", remediate="true",
    failure_mode="stall",
)  # fmt: skip


def looked(running: Alertmanager) -> dict[str, Finding]:
    return {each.check: each for each in check_alertmanager(running.url)}


def test_the_shipped_routes_lead_to_the_remediator_and_deliver(alertmanager: Alertmanager) -> None:
    assert looked(alertmanager)["routes"].ok is True
    alertmanager.post([STALLED])
    found = wait_until(lambda: looked(alertmanager).get("messages"), "a notification is counted")
    assert found.ok is True


def test_a_remediator_that_cannot_be_reached_is_named(tools: Tools, tmp_path: Path) -> None:
    with running_alertmanager(tools, tmp_path, edits={"http://remediator:9746": "http://127.0.0.1:1"}) as running:
        assert looked(running)["routes"].ok is True
        running.post([STALLED])
        found = wait_until(
            lambda: next((each for each in check_alertmanager(running.url) if each.ok is False), None), "it fails"
        )
    assert found.check == "messages"
    assert "notifications by webhook have failed" in found.message
