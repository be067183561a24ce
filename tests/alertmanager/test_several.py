"""Two real Alertmanagers that stand for each other, for the remediator's list of alerts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.alertmanager.running import alertmanager
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.stack.binaries import Tools
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.observe.alertmanagers import AlertmanagerAlerts

pytestmark = pytest.mark.tools


def test_an_alert_fires_if_any_says_so_and_none_silences_it_also_while_one_is_away(
    tools: Tools, tmp_path: Path
) -> None:
    with ExitStack() as stay, ExitStack() as goes:
        first = stay.enter_context(alertmanager(tools, tmp_path / "first"))
        second = goes.enter_context(alertmanager(tools, tmp_path / "second"))
        second.silence("Silenced")
        for each, sent in ((first, ("OfFirst", "Silenced", "Both")), (second, ("OfSecond", "Silenced", "Both"))):
            for name in sent:
                each.send(name, run_id="r", remediate="true")
        counted: dict[str, str | None] = {}
        clients = {each.url: AlertmanagerClient(each.url) for each in (first, second)}
        alerts = AlertmanagerAlerts(clients, answered=counted.__setitem__)

        def names() -> set[str | None]:
            found = alerts.firing()
            assert isinstance(found, list)
            return {alert.label("alertname") for alert in found}

        wait_until(lambda: names() == {"OfFirst", "OfSecond", "Both"}, "the alerts of both")
        assert set(counted.values()) == {None}
        assert alerts.lists_watchdog() is False, "whoever delivers it is another one"
        second.send("TrainWatchdog", severity="none")
        wait_until(lambda: alerts.lists_watchdog() is True, "the watchdog")
        goes.close()
        assert "OfFirst" in names()
        assert "OfSecond" not in names()
        assert (counted[first.url], bool(counted[second.url])) == (None, True)
        stay.close()
        assert isinstance(alerts.firing(), Unknown)
        alerts.close()
