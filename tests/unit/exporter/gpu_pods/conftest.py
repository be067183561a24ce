"""A node with GPUs, and its kubelet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import NodeTree
from tests.unit.exporter.gpu_pods.kubelet import Kubelet


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path)


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has 107 bytes at most
        server = Kubelet(Path(folder) / "kubelet.sock")
        yield server
        server.stop()
