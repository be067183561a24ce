"""Fixtures of the tests of fine-tuning jobs."""

from __future__ import annotations

import pytest

from tests.unit.exporter.finetuning.finetuning_tree import FinetuningTree
from tests.unit.exporter.runs_tree import RunsTree


@pytest.fixture
def tree(runs: RunsTree) -> FinetuningTree:
    """A runs folder, GPUs, and the view of them."""
    return FinetuningTree(runs)
