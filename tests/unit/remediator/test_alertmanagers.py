"""Several Alertmanagers that stand for each other: one that is away hides nothing, and what one silences is silent."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.clients.scripted import Scripted
from tests.unit.remediator.simulated_cluster import FakeClock
from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.alertmanagers import AlertmanagerAlerts, WatchdogCheck

AWAY = "http://127.0.0.1:1"


def entry(name: str, starts: str = "2027-01-01T00:00:10Z", **status: object) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "remediate": "true"},
        "startsAt": starts,
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], **status},
    }


@pytest.fixture
def two() -> Iterator[tuple[Scripted, Scripted]]:
    servers = Scripted(), Scripted()
    yield servers
    for server in servers:
        server.close()


class Asked:
    """The alerts of these addresses, and what was counted of each."""

    def __init__(self, *urls: str) -> None:
        self.counted: dict[str, str | None] = {}
        clients = {url: AlertmanagerClient(url) for url in urls}
        self.alerts = AlertmanagerAlerts(clients, answered=self.counted.__setitem__)

    def firing(self) -> list[tuple[str | None, float | None]]:
        found = self.alerts.firing()
        assert isinstance(found, list)
        return [(alert.label("alertname"), alert.starts_at) for alert in found]


def test_an_alert_fires_if_any_holds_it_and_none_has_it_suppressed(two: tuple[Scripted, Scripted]) -> None:
    first, second = two
    first.body = json.dumps([entry("A"), entry("B"), entry("C"), entry("both")]).encode()
    second.body = json.dumps(
        [entry("B", silencedBy=["x"]), entry("C", inhibitedBy=["y"]), entry("D"), entry("both")]
    ).encode()
    for urls in ((first.url, second.url), (second.url, first.url)):
        assert {name for name, _ in Asked(*urls).firing()} == {"A", "D", "both"}
    assert "silenced=true" in first.asked, "what one of them silences has to be seen"


def test_an_alert_that_both_hold_has_its_earliest_start_whichever_answers_first(
    two: tuple[Scripted, Scripted],
) -> None:
    first, second = two
    first.body = json.dumps([entry("A", "2027-01-01T00:00:30Z")]).encode()
    second.body = json.dumps([entry("A", "2027-01-01T00:00:10Z")]).encode()
    assert Asked(first.url, second.url).firing() == Asked(second.url, first.url).firing() == [("A", 1798761610.0)]


def test_one_that_is_away_is_counted_and_logged_once_and_the_others_count(
    two: tuple[Scripted, Scripted], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = two
    first.body, second.status = json.dumps([entry("A")]).encode(), 502
    asked = Asked(first.url, second.url)
    for _ in range(3):
        assert [name for name, _ in asked.firing()] == ["A"]
    assert asked.counted[first.url] is None
    assert "502" in (asked.counted[second.url] or "")
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"one of 2 Alertmanagers, {second.url}, gives no answer: ")
    second.status, second.body = 200, b"[]"
    assert [name for name, _ in asked.firing()] == ["A"]
    assert f"one of 2 Alertmanagers, {second.url}, answers again after 0 s" in caplog.text


@pytest.mark.parametrize(
    ("listed", "delivered", "noticed"),
    [([], True, True), ([entry("TrainWatchdog")], True, False), ([], False, False), (None, True, False)],
    ids=["another lists it", "it is listed", "none is delivered", "no answer"],
)
def test_webhooks_of_another_alertmanager_than_those_that_are_asked_are_noticed(
    two: tuple[Scripted, Scripted], listed: list[object] | None, delivered: bool, noticed: bool
) -> None:
    """Every alert would be taken for one that is not active, for ever, and without a word."""
    scripted, _ = two
    scripted.status, scripted.body = (502, b"") if listed is None else (200, json.dumps(listed).encode())
    clock = FakeClock()
    metrics = Metrics(monotonic=clock.monotonic)
    alerts = AlertmanagerAlerts({scripted.url: AlertmanagerClient(scripted.url)})
    check = WatchdogCheck(alerts, lambda: clock.now() - 60 if delivered else None, metrics.read, clock)
    for clock.elapsed in range(0, 330, 5):
        check.look()
        assert metrics.answers.missing() == {}, "an Alertmanager that was just started"
    for clock.elapsed in range(330, 600, 5):
        check.look()
    assert ("alertmanager" in metrics.answers.missing()) == noticed
    if noticed:
        assert "none of --alertmanager-url lists TrainWatchdog" in metrics.answers.missing()["alertmanager"]
        scripted.body = json.dumps([entry("TrainWatchdog")]).encode()
        clock.elapsed += 60
        check.look()
        assert metrics.answers.missing() == {}
    alerts.close()


def test_without_any_answer_nothing_is_known(two: tuple[Scripted, Scripted]) -> None:
    two[0].status = 500
    found = Asked(two[0].url, AWAY).alerts.firing()
    assert isinstance(found, Unknown)
    assert "500" in found.reason
    assert "127.0.0.1:1" in found.reason


def test_what_one_has_silenced_stays_silenced_for_an_hour_while_it_is_away(two: tuple[Scripted, Scripted]) -> None:
    """A person has silenced a run in one that goes away: the other does not have that silence."""
    first, second = two
    first.body = json.dumps([entry("A", silencedBy=["x"]), entry("B", inhibitedBy=["y"])]).encode()
    second.body = json.dumps([entry("A"), entry("B"), entry("C")]).encode()
    asked, now = Asked(first.url, second.url), [0.0]
    asked.alerts._monotonic = lambda: now[0]
    assert {name for name, _ in asked.firing()} == {"C"}
    first.status = 503
    assert {name for name, _ in asked.firing()} == {"B", "C"}
    now[0] = 3599.0
    assert {name for name, _ in asked.firing()} == {"B", "C"}
    now[0] = 3601.0
    assert {name for name, _ in asked.firing()} == {"A", "B", "C"}
    first.status, first.body = 200, json.dumps([entry("A")]).encode()
    assert {name for name, _ in asked.firing()} == {"A", "B", "C"}
    first.status, now[0] = 503, 3700.0
    assert {name for name, _ in asked.firing()} == {"A", "B", "C"}, "the silence was over before it went away"
