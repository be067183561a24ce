"""Whether the random histories would find faults: see mutations.py."""

from __future__ import annotations

import pytest

from tests.offenders import assert_none
from tests.unit.remediator.mutations import MUTATIONS, Mutation, find, package


def test_each_mutation_still_breaks_what_is_there() -> None:
    edits = [(mutation.name, edit) for mutation in MUTATIONS for edit in mutation.edits]
    assert_none(f"{name}: {edit}" for name, edit in edits if (package() / edit.file).read_text().count(edit.old) != 1)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_histories_find_each_mutation(mutation: Mutation) -> None:
    assert find(mutation) is not None
