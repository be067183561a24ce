"""From when a restart counts as one that did not help."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.remediator.simulation import FakeClock
from trainwarden_remediator.drivers.driver import JobState, RestartProgress, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.evidence import Evidence
from trainwarden_remediator.incident import Action, Incident, State
from trainwarden_remediator.verify import Verifier
from trainwarden_remediator.world import World


class NothingSeen:
    """No exporter has shown an attempt of the run yet."""

    def run(self, run_id: str) -> Evidence:
        return Unknown("no samples")


INCIDENT = Incident(
    "i", "r", 0, "local:7:0", "7", "local", "TrainRunStalled", "stall", "hang", State.VERIFYING, Action.RESTART,
    "policy", "default", 0, 2, 20.0, created=0.0, updated=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("generation", "detail", "seconds"),
    [(0, "the new start is running", 1800.0), (1, "the new start has ended", 120.0)],
)
def test_the_old_start_that_is_seen_ended_is_not_taken_for_the_new_one(
    generation: int, detail: str, seconds: float
) -> None:
    """The launcher has taken the restart, ended the old start, and has not begun the new one yet."""
    clock = FakeClock()
    world = World(clock, cast("Any", None), NothingSeen(), {}, cast("Any", None))
    reading = ScheduledJob("7", "r", generation, JobState.FAILED, "failed", None, {"i": 1})
    verdict = Verifier(world, 1800.0).verify(INCIDENT, reading, RestartProgress.STARTED)
    assert verdict is not None
    assert (verdict.state, verdict.detail) == (State.VERIFYING, detail)
    assert verdict.changes["deadline"] - clock.now() == seconds
