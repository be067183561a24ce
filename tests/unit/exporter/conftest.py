"""Fixtures of the exporter's unit tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import RunsTree


@pytest.fixture(autouse=True, scope="module")
def texts_are_compiled_once(texts_compiled_once: None) -> None:
    """Each test makes a reader of logs, or several."""


@pytest.fixture
def runs(tmp_path: Path) -> RunsTree:
    """A runs folder and the collector of this host's exporter."""
    return RunsTree(tmp_path / "runs")


@pytest.fixture
def make_runs(tmp_path: Path) -> Callable[..., RunsTree]:
    """Collectors with other options, all of one runs folder."""
    return lambda **options: RunsTree(tmp_path / "runs", **options)
