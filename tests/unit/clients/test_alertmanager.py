"""The alerts that Alertmanager holds, or why they are not known."""

from __future__ import annotations

import json

import pytest

from tests.cases import cases
from tests.unit.clients.scripted import Scripted
from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError


def entry(state: str = "active", **status: list[str]) -> dict[str, object]:
    return {
        "labels": {"alertname": "A"},
        "startsAt": "2027-01-01T00:00:00Z",
        "status": {"state": state, "silencedBy": [], "inhibitedBy": [], **status},
    }


def test_alerts_carry_their_state(scripted: Scripted) -> None:
    entries = [entry(), entry("unprocessed"), entry("suppressed"), entry(silencedBy=["x"]), entry(inhibitedBy=["x"])]
    scripted.body = json.dumps(entries).encode()
    found = AlertmanagerClient(scripted.url).alerts('a="b"', "c=d", silenced=False)
    assert [each.is_suppressed for each in found] == [False, False, True, True, True]
    assert found[0].labels == {"alertname": "A"}
    assert (found[0].starts_at, found[0].state) == ("2027-01-01T00:00:00Z", "active")
    for parameter in ("active=true", "silenced=false", "inhibited=true", "filter=a%3D%22b%22", "filter=c%3Dd"):
        assert parameter in scripted.asked


@cases(
    ("status", "body", "reason"),
    [
        (500, b"[]", "answered 500"),
        (200, b"{", "expected a list of alerts"),
        (200, b"{}", "expected a list of alerts"),
        (200, b'{"a": 1}', "expected a list of alerts"),
        (200, b"[1]", "expected a list of alerts"),
        (200, b"[{}]", "expected a list of alerts"),
        (200, b"7", "expected a list of alerts"),
    ],
)
def test_an_answer_that_cannot_be_used_gives_the_reason(
    scripted: Scripted, status: int, body: bytes, reason: str
) -> None:
    scripted.status, scripted.body = status, body
    with pytest.raises(AlertmanagerError, match=reason):
        AlertmanagerClient(scripted.url).alerts()


def test_alerts_are_posted_as_they_are_given(scripted: Scripted) -> None:
    AlertmanagerClient(scripted.url).post_alerts([{"labels": {"alertname": "A"}}])
    assert json.loads(scripted.posted) == [{"labels": {"alertname": "A"}}]
    scripted.status = 400
    with pytest.raises(AlertmanagerError, match="answered 400"):
        AlertmanagerClient(scripted.url).post_alerts([])
