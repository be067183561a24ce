"""Incidents: each is noticed in time, by the alerts that name it, and nothing else fires."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.incidents.document import document
from tests.incidents.incidents import INCIDENTS, Incident
from tests.incidents.timeline import assert_noticed, timeline
from tests.offenders import assert_none
from tests.rules.promtool import ROOT
from trainwarden.stack.binaries import Tools

EACH = [pytest.param(each, id=each.name, marks=[] if each.quick else [pytest.mark.nightly]) for each in INCIDENTS]


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.timeout(1200)  # of processor time hours of a fleet take up to two minutes
@pytest.mark.parametrize("incident", EACH)
def test_an_incident_is_noticed_in_time_and_nothing_else_fires(
    tools: Tools, tmp_path: Path, incident: Incident
) -> None:
    assert_noticed(incident, timeline(tools.promtool, tmp_path, incident.page, incident.seconds))


def test_the_alert_that_restarts_a_run_meets_its_budget() -> None:
    def late() -> Iterator[str]:
        for incident in INCIDENTS:
            if incident.restarts:
                assert incident.acted_on is not None, incident.name
                alert, seconds = incident.acted_on
                if incident.within[alert] > seconds:
                    yield f"{incident.name}: {alert} within {incident.within[alert]} s, at most {seconds}"

    assert_none(late())


def test_the_remediator_has_an_alert_as_soon_as_the_page_states() -> None:
    configuration = yaml.safe_load((ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
    routes = [each for each in configuration["route"]["routes"] if "remediat" in each["receiver"]]
    assert {each["group_wait"] for each in routes} == {"1s"}
    assert "at most 1 s later" in document()


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/detection.md").read_text(encoding="utf-8") == document(), "make docs"
