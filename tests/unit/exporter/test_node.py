"""By which names a node is known: in run records, in SLURM and in the cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import cases
from tests.nodes.tree import NodeTree
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.node import Node, node_from_flags, slurm_node_name
from trainwarden_exporter.flags import build_parser

EC2 = {"sys_vendor": "Amazon EC2", "board_asset_tag": "i-0af01c0123456789a", "product_name": "p5.48xlarge"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeTree:
    for name in ("TRAINWARDEN_INSTANCE_ID", "EC2_INSTANCE_ID", "INSTANCE_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    return NodeTree(tmp_path)


def line_of(node: Node) -> str:
    families = Families()
    node.add_info(families)
    return encode_text(families.collected()).decode().splitlines()[-1]


def node_of(tree: NodeTree, slurm_node: str = "") -> Node:
    return Node("node1", tree.sysfs, tree.procfs, tree.rootfs, slurm_node)


def test_an_instance_of_ec2_states_its_id_and_type(tree: NodeTree) -> None:
    for name, text in EC2.items():
        tree.write(f"class/dmi/id/{name}", f"{text}\n")
    assert line_of(node_of(tree, "queue-1")) == (
        'trainwarden_node_info{host="node1",slurm_node="queue-1",instance_id="i-0af01c0123456789a",'
        'instance_type="p5.48xlarge"} 1.0'
    )


def test_what_no_file_states_is_empty(tree: NodeTree) -> None:
    tree.write("class/dmi/id/sys_vendor", "Dell Inc.\n")
    tree.write("class/dmi/id/product_name", "PowerEdge XE9680\n")
    assert line_of(node_of(tree)) == (
        'trainwarden_node_info{host="node1",slurm_node="",instance_id="",instance_type=""} 1.0'
    )


def test_a_name_from_a_file_is_cut_and_has_no_control_characters(tree: NodeTree) -> None:
    for name, text in {**EC2, "product_name": "p5\x1b[31m" + 900 * "x"}.items():
        tree.write(f"class/dmi/id/{name}", f"{text}\n")
    line = line_of(node_of(tree))
    assert "\x1b" not in line
    assert len(line) < 400


@cases(
    ("host", "environ", "name"),
    [
        ("node1", {}, "node1"),
        ("node1.cluster.internal", {}, "node1"),
        ("10.0.3.7", {}, "10.0.3.7"),
        ("ip-10-0-3-7.ec2.internal", {"SLURMD_NODENAME": "gpu-dy-p5-3"}, "gpu-dy-p5-3"),
    ],
)
def test_the_name_in_slurm_is_what_slurmd_would_take(host: str, environ: dict[str, str], name: str) -> None:
    assert slurm_node_name(host, environ) == name


def test_a_flag_names_the_node_in_slurm(tree: NodeTree) -> None:
    parsed = build_parser().parse_args(["--instance-host=h.example", *tree.flags])
    assert node_from_flags(vars(parsed)).slurm_node == "h"
    parsed = build_parser().parse_args(["--instance-host=h.example", "--instance-slurm-node=n7", *tree.flags])
    assert node_from_flags(vars(parsed)).slurm_node == "n7"
