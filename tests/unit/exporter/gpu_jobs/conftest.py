"""Fixtures of the tests of which job a GPU works for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import NodeTree


@pytest.fixture
def node(tmp_path: Path) -> NodeTree:
    """A node with four GPUs and nothing on them."""
    return NodeTree(tmp_path)
