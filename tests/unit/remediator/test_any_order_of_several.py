"""Random histories of several runs, in a file of their own: pytest-xdist gives each file to one of its processes."""

from __future__ import annotations

import pytest

from tests.unit.remediator.histories import AnyOrder
from tests.unit.remediator.machines import SHARES, histories_of, lengths, run


@pytest.mark.parametrize("machine", [each for each in SHARES if each.runs > 1])
@lengths
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_of_several_runs_starts_anything_twice(machine: type[AnyOrder], times: float) -> None:
    run(machine, histories_of(machine, times))
