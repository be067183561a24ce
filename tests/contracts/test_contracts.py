"""Nothing that users or other programs rely on changes unless somebody has read the change."""

from __future__ import annotations

import pytest

from tests.contracts.compare import FAMILIES, PROCESSES, difference, expected_file, observed


@pytest.mark.parametrize("family", [*FAMILIES, *(pytest.param(each, marks=pytest.mark.process) for each in PROCESSES)])
def test_the_contract_is_as_written(family: str) -> None:
    written = expected_file(family).read_text(encoding="utf-8").splitlines()
    assert not (changed := difference(family, written, observed(family))), f"\n{changed}"
