"""Fixtures of the tests of the networks that NCCL uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.exporter.transport.transport_tree import TransportTree


@pytest.fixture
def tree(tmp_path: Path) -> TransportTree:
    """A node without fast networks and with one running run, `r`."""
    tree = TransportTree(tmp_path)
    tree.runs.metadata("r")
    return tree
