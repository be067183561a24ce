"""Which EFA devices there are, should be, and were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.nodes.efa_devices import add_efa
from tests.nodes.fixtures import half_dead, mi300x, no_gpu, p4d, p5, p5en
from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from tests.unit.exporter.contexts import context
from trainwarden_exporter.collectors.rdma import efa as spec
from trainwarden_exporter.core.node import Node

Watch = Callable[..., Watched]


def node(tree: NodeTree) -> Node:
    return Node("node1", tree.sysfs, tree.procfs, tree.rootfs)


def add(tree: NodeTree, bus: str, place: int = 0) -> None:
    add_efa(tree, f"0000:{bus}:00.0", place, device_id="0xefa3", numa=0, driver="2.13.0")


@pytest.mark.parametrize(("make", "count"), [(p5, 32), (p5en, 16), (p4d, 4)])
def test_a_healthy_node_has_what_its_type_should_have(
    tmp_path: Path, watch: Watch, make: Callable[[Path], NodeTree], count: int
) -> None:
    watched = watch(make(tmp_path))
    watched.look()
    assert watched.value("efa_devices") == watched.value("efa_devices_expected") == count
    assert set(watched.labelled("efa_device_up", "device").values()) == {1}
    assert (watched.value("efa_node_devices_down"), watched.value("efa_node_ports_down")) == (0, 0)


def test_the_flag_wins_over_the_type_and_the_type_over_the_bus(tmp_path: Path, watch: Watch) -> None:
    tree = half_dead(tmp_path)
    for expected, shown in ((7, 7), (None, 32)):
        watched = watch(tree, expected)
        watched.look()
        assert watched.value("efa_devices_expected") == shown
    (tree.sysfs / "class/dmi/id/product_name").write_text("something new\n")
    tree.remove_pci("0000:4f:00.0")
    watched = watch(tree)
    watched.look()
    assert watched.value("efa_devices_expected") == 31
    assert watched.value("efa_devices") == 28


def test_devices_that_come_late_are_found_and_waited_for(tree: NodeTree, watch: Watch) -> None:
    tree.product("p5en.48xlarge")
    flags: dict[str, Any] = {"expect.efa_devices": None}
    assert spec.enabled(context(spec.SPEC, node(tree), flags))
    watched = watch(tree)
    watched.look()
    assert (watched.value("efa_devices"), watched.value("efa_devices_expected")) == (0, 16)
    add(tree, "4f")
    watched.look()
    assert watched.value("efa_devices") == 1
    assert watched.value("efa_port_up", device="rdmap79s0", port="1") == 1


@cases(("make", "there"), [(p4d, True), (mi300x, False), (no_gpu, False)])
def test_the_collector_is_on_where_there_is_efa(tmp_path: Path, make: Callable[[Path], NodeTree], there: bool) -> None:
    assert spec.enabled(context(spec.SPEC, node(make(tmp_path)), {"expect.efa_devices": None})) is there


def test_a_device_without_its_driver_switches_the_collector_on(tree: NodeTree) -> None:
    assert not spec.enabled(context(spec.SPEC, node(tree), {"expect.efa_devices": None}))
    tree.pci("0000:4f:00.0", "0x1d0f", "0xefa2", "0x020000", 0)
    assert spec.enabled(context(spec.SPEC, node(tree), {"expect.efa_devices": None}))


def test_a_device_of_another_maker_is_none(tree: NodeTree, watch: Watch) -> None:
    add(tree, "4f")
    tree.pci("0000:50:00.0", "0x15b3", "0x1021", "0x020700", 0)
    tree.rdma("mlx5_0", "0000:50:00.0", firmware="28.39")
    watched = watch(tree)
    watched.look()
    assert watched.value("efa_devices") == 1
    assert "mlx5_0" not in watched.page


def test_what_a_device_is_stands_on_its_info(tree: NodeTree, watch: Watch) -> None:
    tree.write("module/efa/version", "2.13.0g")
    add(tree, "4f")
    (tree.sysfs / "devices/pci0000:00/0000:4f:00.0/numa_node").write_text("-1\n")
    watched = watch(tree)
    watched.look()
    labels = {"pci_bus_id": "0000:4f:00.0", "firmware": "0.0.0.0", "numa_node": "", "driver": "2.13.0g"}
    assert watched.value("efa_device_info", device="rdmap79s0", **labels) == 1


def test_a_device_that_vanishes_stays_in_sight_and_costs_the_others_nothing(tree: NodeTree, watch: Watch) -> None:
    add(tree, "4f")
    add(tree, "50")
    watched = watch(tree)
    watched.look()
    tree.remove_rdma("rdmap79s0")
    watched.look()
    assert watched.labelled("efa_device_up", "device") == {"rdmap79s0": 0, "rdmap80s0": 1}
    assert watched.value("efa_node_devices_down") == 1
    assert watched.labelled("efa_port_up", "device") == {"rdmap80s0": 1}
    assert watched.value("efa_devices") == 1
    assert watched.success == 1


def test_a_device_that_comes_back_under_another_name_is_not_missed_for_ever(tree: NodeTree, watch: Watch) -> None:
    add(tree, "4f")
    watched = watch(tree)
    watched.look()
    tree.remove_rdma("rdmap79s0")
    watched.look()
    tree.rdma("efa_0", "0000:4f:00.0", firmware="0.0.0.0")
    watched.look()
    assert watched.labelled("efa_device_up", "device") == {"efa_0": 1}
    assert watched.value("efa_node_devices_down") == 0


def test_a_device_whose_driver_was_loaded_anew_is_read_anew(tree: NodeTree, watch: Watch) -> None:
    add(tree, "4f", place=5)
    watched = watch(tree)
    watched.look()
    before = watched.value("efa_tx_bytes_total", device="rdmap79s0", port="1")
    tree.remove_rdma("rdmap79s0")
    folder = tree.rdma("rdmap79s0", "0000:4f:00.0", firmware="0.0.0.0")
    tree.counters(folder / "ports/1/hw_counters", {"tx_bytes": 3, "brand_new": 4})
    watched.look()
    assert before == 6 * 10**9
    assert watched.value("efa_tx_bytes_total", device="rdmap79s0", port="1") == 3
    assert watched.value("efa_hw_value", device="rdmap79s0", port="1", name="brand_new") == 4
    assert watched.success == 1


def test_a_device_that_is_seen_before_its_ports_and_their_counters_is_listed_again(
    tree: NodeTree, watch: Watch
) -> None:
    folder = tree.rdma("rdmap79s0", "0000:4f:00.0", firmware="0.0.0.0")
    tree.pci("0000:4f:00.0", "0x1d0f", "0xefa3", "0x020000", 0)
    (folder / "ports").rename(tree.sysfs / "later")
    watched = watch(tree)
    watched.look()
    assert watched.labelled("efa_port_up", "device") == {}
    (tree.sysfs / "later").rename(folder / "ports")
    watched.look()
    assert watched.value("efa_port_up", device="rdmap79s0", port="1") == 1
    tree.counters(folder / "ports/1/hw_counters", {"tx_bytes": 3})
    watched.look()
    assert watched.value("efa_tx_bytes_total", device="rdmap79s0", port="1") == 3
    assert watched.value("efa_read_errors_total", device="rdmap79s0") == 0


def test_a_port_that_goes_down_is_reported_and_counted(tree: NodeTree, watch: Watch) -> None:
    add(tree, "4f")
    add(tree, "50")
    port = tree.sysfs / "class/infiniband/rdmap79s0/ports/1"
    watched = watch(tree)
    watched.look()
    (port / "state").write_text("1: DOWN\n")
    (port / "phys_state").write_text("3: Disabled\n")
    (port / "rate").write_text("2.5 Gb/sec (1X SDR)\n")
    watched.look()
    shown = [
        watched.value(f"efa_port_{name}", device="rdmap79s0", port="1")
        for name in ("up", "state", "physical_state", "rate_bytes_per_second")
    ]
    assert shown == [0, 1, 3, 2.5e9 / 8]
    assert watched.value("efa_port_rate_bytes_per_second", device="rdmap80s0", port="1") == 12.5e9
    assert watched.value("efa_node_ports_down") == 1
