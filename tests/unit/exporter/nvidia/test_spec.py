"""On which nodes the collector is on, and how many GPUs it says there should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nodes.fixtures import mi300x, no_gpu
from tests.nodes.tree import NodeTree
from tests.unit.exporter.contexts import context
from trainwarden_exporter.collectors.gpu.spec import NVIDIA_SPEC, nvidia_enabled
from trainwarden_exporter.core.node import Node

SAID_NOTHING: dict[str, Any] = {
    "expect.gpus": None,
    "collector.amd": None,
    "collector.nvidia.pci_bus": True,
    "collector.nvidia.interval": 5.0,
    "collector.nvidia.slow_interval": 30.0,
    "collector.nvidia.timeout": 10.0,
}


def present(tree: NodeTree, **said: Any) -> bool:
    flags = SAID_NOTHING | {name.replace("__", "."): value for name, value in said.items()}
    return nvidia_enabled(context(NVIDIA_SPEC, Node("node1", tree.sysfs, tree.procfs, tree.rootfs), flags))


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    """A node whose bus shows no GPU at all."""
    return no_gpu(tmp_path)


def test_a_node_on_which_no_gpu_is_left_is_watched_where_there_should_be_some(tree: NodeTree) -> None:
    assert not present(tree)
    assert present(tree, expect__gpus=8)
    assert not present(tree, expect__gpus=0)
    tree.product("p5.48xlarge")
    assert present(tree)
    assert not present(tree, expect__gpus=0), "the flag wins over the type"
    assert not present(tree, collector__nvidia__pci_bus=False), "a container need not have what the instance has"


def test_the_gpus_that_should_be_there_are_amds_where_something_of_amd_is(tmp_path: Path, tree: NodeTree) -> None:
    assert not present(tree, expect__gpus=8, collector__amd=True)
    (tree.rootfs / "dev").mkdir(exist_ok=True)
    (tree.rootfs / "dev/kfd").touch()
    assert not present(tree, expect__gpus=8), "the driver outlives the GPUs"
    assert not present(mi300x(tmp_path / "mi300x"), expect__gpus=8)
    tree.pci("0000:3b:00.0", "0x10de", "0x2330", "0x030200", 0)
    assert present(tree, expect__gpus=8)
