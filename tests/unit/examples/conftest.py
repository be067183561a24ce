"""Fixtures of the tests of examples."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.examples.training import Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    made = Training(tmp_path)
    yield made
    made.clean_up()
