"""Which GPUs there are, as the driver's files say."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.exporter.contexts import context
from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, uuid
from trainwarden_exporter.collectors.gpu.roster import NodeRoster, RosterGpu
from trainwarden_exporter.collectors.gpu_jobs.collector import SPEC
from trainwarden_exporter.collectors.gpu_jobs.gpus import find_gpus
from trainwarden_exporter.core.node import Node


def test_gpus_are_counted_in_the_order_of_the_bus_and_found_by_each_of_their_names(node: NodeTree) -> None:
    gpus = find_gpus(node.procfs, node.sysfs, NodeRoster(), NodeRoster())
    assert [(gpu.index, gpu.uuid, gpu.minor) for gpu in gpus.all] == [(i, uuid(i), MINORS[i]) for i in range(4)]
    second = gpus.all[1]
    assert gpus.by_index(1) == gpus.by_minor(3) == gpus.by_uuid(uuid(1).upper()) == second
    assert gpus.by_index(4) is gpus.by_minor(4) is gpus.by_uuid("") is None


@pytest.mark.parametrize("text", ["", "GPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: x\n"])
def test_a_gpu_that_does_not_state_its_uuid_is_still_there(node: NodeTree, text: str) -> None:
    (node.gpu(2) / "information").write_text(text)
    (node.gpu(3) / "information").unlink()
    gpus = find_gpus(node.procfs, node.sysfs, NodeRoster(), NodeRoster())
    assert [gpu.uuid for gpu in gpus.all] == [uuid(0), uuid(1), "", ""]


def _on_bus(tree: NodeTree, address: str, vendor: str) -> None:
    device = tree.sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text("0x030200\n")


def test_amd_gpus_have_their_index_alone(tmp_path: Path) -> None:
    tree = NodeTree(tmp_path, gpus=0)
    for address in ("0000:05:00.0", "0000:26:00.0"):
        _on_bus(tree, address, "0x1002")
    gpus = find_gpus(tree.procfs, tree.sysfs, NodeRoster(), NodeRoster())
    assert [(gpu.index, gpu.uuid) for gpu in gpus.all] == [(0, ""), (1, "")]
    assert gpus.by_minor(1) == gpus.all[1]


def test_a_gpu_that_its_driver_does_not_have_counts_as_on_every_other_page(node: NodeTree) -> None:
    for address in ("0000:01:00.0", *(path.name for path in (node.procfs / "driver/nvidia/gpus").iterdir())):
        _on_bus(node, address, "0x10de")
    gpus = find_gpus(node.procfs, node.sysfs, NodeRoster(), NodeRoster())
    assert [(gpu.index, gpu.uuid) for gpu in gpus.all] == [(0, ""), *((i + 1, uuid(i)) for i in range(4))]


def test_a_gpu_that_goes_leaves_the_others_their_index(node: NodeTree) -> None:
    roster = NodeRoster()

    def found() -> list[tuple[int, str]]:
        return [(gpu.index, gpu.uuid) for gpu in find_gpus(node.procfs, node.sysfs, roster, NodeRoster()).all]

    before = found()
    folder = node.gpu(0)
    (folder / "information").unlink()
    folder.rmdir()
    assert found() == before
    node.gpu(0).rename(folder.parent / "0000:01:00.0")
    assert found() == before, "the same GPU in another slot"


def test_a_number_that_the_driver_gave_to_another_gpu_is_no_longer_that_of_the_one_that_left(node: NodeTree) -> None:
    roster = NodeRoster()
    find_gpus(node.procfs, node.sysfs, roster, NodeRoster())
    first, second = node.gpu(0), node.gpu(1)
    (first / "information").unlink()
    first.rmdir()
    gpus = find_gpus(node.procfs, node.sysfs, roster, NodeRoster())
    gone = gpus.by_minor(MINORS[0])
    assert gone is not None
    assert gone.index == 0, "the job that had it still names it by this number"
    text = (second / "information").read_text().replace(f"Minor: \t {MINORS[1]}", f"Minor: \t {MINORS[0]}")
    (second / "information").write_text(text)
    gpus = find_gpus(node.procfs, node.sysfs, roster, NodeRoster())
    other = gpus.by_minor(MINORS[0])
    assert other is not None
    assert other.index == 1


def test_a_number_that_the_driver_gave_to_another_gpu_is_not_that_of_one_on_the_bus_that_it_did_not_take(
    node: NodeTree,
) -> None:
    folders = [node.gpu(index) for index in range(4)]
    for folder in folders:
        _on_bus(node, folder.name, "0x10de")
    roster = NodeRoster()
    roster.is_sampled = True  # by the collector `nvidia`, whose driver opens the others alone
    roster.keep(
        [asdict(RosterGpu(index, folder.name, uuid(index), MINORS[index])) for index, folder in enumerate(folders)]
    )
    (folders[3] / "information").unlink()
    folders[3].rmdir()
    second = folders[1] / "information"
    second.write_text(second.read_text().replace(f"Minor: \t {MINORS[1]}", f"Minor: \t {MINORS[3]}"))
    owner = find_gpus(node.procfs, node.sysfs, roster, NodeRoster()).by_minor(MINORS[3])
    assert owner is not None
    assert owner.index == 1


def test_it_is_on_where_there_are_gpus(node: NodeTree, tmp_path: Path) -> None:
    assert SPEC.enabled(context(SPEC, Node("n1", node.sysfs, node.procfs), {}))
    assert not SPEC.enabled(context(SPEC, Node("n1", tmp_path, tmp_path), {}))
