"""The machines of histories.py for jobs that come back under a new id."""

from __future__ import annotations

import pytest

from tests.unit.remediator.histories import AnyOrder, run
from trainwarden_remediator.drivers.driver import Shape


class AnyOrderOfResubmits(AnyOrder):
    """Submitted held, and released."""

    shape = Shape.RESUBMIT

    def __init__(self) -> None:
        super().__init__()
        for cluster in self.simulation.clusters:
            cluster.shape = self.shape


class AnyOrderOfSubmits(AnyOrderOfResubmits):
    """Submitted under an id of the attempt, which starts at once."""

    shape = Shape.SUBMIT


@pytest.mark.parametrize("machine", [AnyOrderOfResubmits, AnyOrderOfSubmits])
@pytest.mark.parametrize("histories", [15, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], histories: int) -> None:
    run(machine, histories)
