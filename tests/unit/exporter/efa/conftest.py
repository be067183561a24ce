"""Fixtures of the tests of EFA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from trainwarden_exporter.collectors.rdma.efa import EfaCollector


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    """A node without anything."""
    return NodeTree(tmp_path)


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    """Watches the EFA devices of a tree; everything is released at the end."""
    watched: list[Watched] = []

    def start(tree: NodeTree, expected: int | None = None, timeout: float = 30.0) -> Watched:
        watched.append(Watched(EfaCollector(tree.sysfs, 1.0, timeout, expected=expected), timeout))
        return watched[-1]

    yield start
    for each in watched:
        each.group.release()
