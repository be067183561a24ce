"""The stronger alert hides the weaker of the same run, and nothing else."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.alertmanager.running import Alertmanager
from tests.waiting import wait_until

pytestmark = pytest.mark.tools

STRONGEST_FIRST = ["TrainRunFailed", "TrainRunTimedOut", "TrainRunStalled", "TrainRunNeverStarted", "TrainRunDegraded"]


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(STRONGEST_FIRST, 2)))
def test_the_stronger_hides_the_weaker(alertmanager: Alertmanager, stronger: str, weaker: str) -> None:
    run_id = f"inhibit-{stronger}-{weaker}"
    for name in (weaker, stronger):
        alertmanager.send(name, run_id=run_id, severity="warning")
    # It inhibits by what it has taken in, which is a moment after it has answered.
    expected = {stronger: "active", weaker: "suppressed"}
    assert wait_until(lambda: alertmanager.states(run_id) == expected)


def test_it_takes_the_same_run(alertmanager: Alertmanager) -> None:
    alertmanager.send("TrainRunFailed", run_id="other-run", severity="critical")
    alertmanager.send("TrainRunDegraded", run_id="this-run", severity="warning")
    assert wait_until(lambda: alertmanager.states("this-run")) == {"TrainRunDegraded": "active"}


def test_alerts_that_name_no_run_hide_nothing(alertmanager: Alertmanager) -> None:
    for name in STRONGEST_FIRST:
        alertmanager.send(name, severity="warning")
    states = wait_until(lambda: found if len(found := alertmanager.states("")) >= len(STRONGEST_FIRST) else None)
    assert {states[name] for name in STRONGEST_FIRST} == {"active"}


def test_a_given_up_run_is_shown_beside_everything_else(alertmanager: Alertmanager) -> None:
    for name in [*STRONGEST_FIRST, "TrainRunRestartExhausted"]:
        alertmanager.send(name, run_id="given-up", severity="critical")
    shown = {"TrainRunFailed", "TrainRunRestartExhausted"}
    expected = {name: "active" if name in shown else "suppressed" for name in [*STRONGEST_FIRST, *shown]}
    assert wait_until(lambda: alertmanager.states("given-up") == expected)
