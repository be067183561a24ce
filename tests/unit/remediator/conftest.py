"""What tests of the remediator share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.simulation import Make, Simulation


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Builds simulations, each with a state folder of its own: `0`, `1`, … below `tmp_path`."""
    made: list[Simulation] = []
    numbers = count()

    def build(**options: Any) -> Simulation:
        made.append(Simulation(tmp_path / str(next(numbers)), **options))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    """A simulation of one run, whose scheduler requeues and releases."""
    made = Simulation(tmp_path / "state", two_phase=True)
    yield made
    made.close()
