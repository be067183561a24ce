"""Random histories: see histories.py for the invariants, and machines.py for what each machine proves them of."""

from __future__ import annotations

import os

import pytest

from tests.unit.remediator.histories import AnyOrder
from tests.unit.remediator.machines import SHARES, run
from tests.unit.remediator.mutations import MUTATIONS, Mutation, find, package

_LONG = int(os.environ.get("TRAINWARDEN_HISTORIES", "10000")) / sum(SHARES.values())


@pytest.mark.parametrize("machine", SHARES)
# Of the shares: with the machines of real drivers all of them take ten minutes of a processor.
@pytest.mark.parametrize("times", [0.4, pytest.param(_LONG, marks=pytest.mark.long)])
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], times: float) -> None:
    run(machine, max(1, int(SHARES[machine] * times)))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
def test_each_mutation_still_breaks_what_is_there(mutation: Mutation) -> None:
    for edit in mutation.edits:
        assert (package() / edit.file).read_text().count(edit.old) == 1, edit


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_histories_find_each_mutation(mutation: Mutation) -> None:
    assert find(mutation) is not None
