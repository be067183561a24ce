"""Random histories of one run: see histories.py for the invariants, and machines.py for what each machine proves."""

from __future__ import annotations

import pytest

from tests.unit.remediator.histories import AnyOrder
from tests.unit.remediator.machines import SHARES, histories_of, lengths, run


@pytest.mark.parametrize("machine", [each for each in SHARES if each.runs == 1])
@lengths
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], times: float) -> None:
    run(machine, histories_of(machine, times))
