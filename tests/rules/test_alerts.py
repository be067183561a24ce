"""Every alert fires when it must and stays silent when it must, by promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.promtool import RULES, Scenario, behaviour, check
from tests.rules.scenarios import SCENARIOS
from trainwarden.stack.binaries import Tools

CASES = [
    pytest.param(scenario, id=f"{subject}: {scenario.name}")
    for subject, scenarios in SCENARIOS.items()
    for scenario in scenarios
]


@pytest.mark.tools
@pytest.mark.parametrize("scenario", CASES)
def test_the_alerts_that_fire_are_those_of_the_scenario(tools: Tools, tmp_path: Path, scenario: Scenario) -> None:
    rules = [behaviour(path.read_text(encoding="utf-8")) for path in RULES]
    assert not check(tools.promtool, tmp_path, rules, [scenario])
