"""A Ray head for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.environment import RayUnavailable, find_python
from tests.ray.head import Head, running_head


@pytest.fixture(scope="session")
def ray_python() -> Path:
    """The Python of an environment that has Ray."""
    try:
        return find_python()
    except RayUnavailable as error:
        pytest.skip(f"Ray cannot be had: {error}")


@pytest.fixture(scope="module")
def head(ray_python: Path) -> Iterator[Head]:
    """One node with four GPUs. It ends with its file: an idle head takes 5 % of a core for as long as it is there."""
    with running_head(ray_python) as started:
        yield started
