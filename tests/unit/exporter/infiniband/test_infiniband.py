"""RDMA devices that are no EFA: links and the basic counters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.nodes.fixtures import mi300x, no_gpu, p4d
from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from tests.unit.exporter.contexts import context
from trainwarden_exporter.collectors.rdma import infiniband as spec
from trainwarden_exporter.collectors.rdma.infiniband import InfinibandCollector
from trainwarden_exporter.collectors.rdma.infiniband_metrics import HARDWARE_COUNTERS
from trainwarden_exporter.core.node import Node

FIRST = "mlx5_0"


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    """A node with eight ConnectX-7."""
    return mi300x(tmp_path)


@pytest.fixture
def watched(tree: NodeTree) -> Iterator[Watched]:
    """Watches them."""
    watched = Watched(InfinibandCollector(tree.sysfs, 1.0, 5.0))
    yield watched
    watched.group.release()


def test_links_and_counters_are_shown_in_base_units(watched: Watched) -> None:
    watched.look()
    port: dict[str, Any] = {"device": FIRST, "port": "1"}
    assert watched.value("infiniband_devices") == 8
    assert watched.value("infiniband_port_up", **port) == 1
    assert watched.value("infiniband_port_rate_bytes_per_second", **port) == 50e9
    assert watched.value("infiniband_tx_bytes_total", **port) == 4 * 10**9
    assert watched.value("infiniband_rx_bytes_total", **port) == 4 * (10**9 + 1)
    assert watched.value("infiniband_tx_packets_total", **port) == 10**9 + 2
    assert watched.labelled("infiniband_symbol_errors_total", "device")["mlx5_3"] == 3
    assert watched.labelled("infiniband_link_downed_total", "device")["mlx5_7"] == 7
    labels = {"pci_bus_id": "0000:09:00.0", "firmware": "28.39.1002", "numa_node": "0", "model": "MT4129"}
    assert watched.value("infiniband_info", device=FIRST, **labels) == 1
    assert watched.success == 1


def test_efa_devices_are_left_to_their_own_collector(tmp_path: Path) -> None:
    watched = Watched(InfinibandCollector(p4d(tmp_path).sysfs, 1.0, 5.0))
    watched.look()
    assert watched.value("infiniband_devices") == 0
    assert "rdmap" not in watched.page


def test_a_software_device_without_hardware_behind_it_is_shown(tree: NodeTree, watched: Watched) -> None:
    (tree.sysfs / "class/infiniband/rxe0/ports/1").mkdir(parents=True)
    (tree.sysfs / "class/infiniband/rxe0/ports/1/state").write_text("4: ACTIVE\n")
    watched.look()
    assert watched.value("infiniband_port_up", device="rxe0", port="1") == 1
    labels = {"pci_bus_id": "", "firmware": "", "numa_node": "", "model": ""}
    assert watched.value("infiniband_info", device="rxe0", **labels) == 1


def test_a_port_that_goes_down_and_a_device_that_vanishes_are_reported(tree: NodeTree, watched: Watched) -> None:
    watched.look()
    (tree.sysfs / "class/infiniband/mlx5_1/ports/1/state").write_text("1: DOWN\n")
    tree.remove_rdma("mlx5_2")
    watched.look()
    assert watched.labelled("infiniband_port_up", "device")["mlx5_1"] == 0
    assert watched.labelled("infiniband_device_up", "device")["mlx5_2"] == 0
    assert watched.value("infiniband_devices") == 7
    assert watched.success == 1


def test_a_device_that_is_seen_before_its_ports_is_listed_again(tree: NodeTree, watched: Watched) -> None:
    ports = (tree.sysfs / "class/infiniband" / FIRST).resolve() / "ports"
    ports.rename(tree.sysfs / "later")
    watched.look()
    assert FIRST not in watched.labelled("infiniband_port_up", "device")
    (tree.sysfs / "later").rename(ports)
    watched.look()
    assert watched.value("infiniband_port_up", device=FIRST, port="1") == 1


def test_a_counter_that_the_device_does_not_have_is_no_error(tree: NodeTree, watched: Watched) -> None:
    counters = tree.sysfs / "class/infiniband/mlx5_0/ports/1/counters"
    (counters / "port_xmit_wait").write_text("N/A (no PMA)\n")
    (counters / "symbol_error").unlink()
    watched.look()
    assert FIRST not in watched.labelled("infiniband_tx_wait_ticks_total", "device")
    assert FIRST not in watched.labelled("infiniband_symbol_errors_total", "device")
    assert watched.value("infiniband_read_errors_total", device=FIRST) == 0


@pytest.mark.parametrize("content", [b"junk", b"-5", b"1" + b"0" * 30])
def test_a_counter_that_is_none_costs_itself_alone(tree: NodeTree, watched: Watched, content: bytes) -> None:
    counters = tree.sysfs / "class/infiniband/mlx5_0/ports/1/counters"
    (counters / "port_rcv_data").write_bytes(content)
    (counters / "link_downed").unlink()
    os.mkfifo(counters / "link_downed")
    watched.look()
    assert FIRST not in watched.labelled("infiniband_rx_bytes_total", "device")
    assert watched.labelled("infiniband_tx_bytes_total", "device")[FIRST] == 4 * 10**9
    assert watched.value("infiniband_read_errors_total", device=FIRST) == 2
    assert watched.success == 1


@cases(("make", "there"), [(mi300x, True), (p4d, False), (no_gpu, False)])
def test_the_collector_is_on_where_there_is_such_a_device(
    tmp_path: Path, make: Callable[[Path], NodeTree], there: bool
) -> None:
    tree = make(tmp_path / "other")
    assert spec.enabled(context(spec.SPEC, Node("node1", tree.sysfs, tree.procfs, tree.rootfs), {})) is there


def test_loss_and_congestion_are_counted_where_the_driver_counts_them(tree: NodeTree, watched: Watched) -> None:
    """The files and numbers of a ConnectX-7 over RoCE; `lifespan` is a setting, and the last is no file of mlx5."""
    files = {
        "out_of_sequence": 17, "packet_seq_err": 5, "rnr_nak_retry_err": 3, "local_ack_timeout_err": 2,
        "np_cnp_sent": 1009, "rp_cnp_handled": 4711, "rp_cnp_ignored": 1, "np_ecn_marked_roce_packets": 1200,
        "roce_adp_retrans": 6, "roce_adp_retrans_to": 4, "roce_slow_restart": 8, "duplicate_request": 9,
        "implied_nak_seq_err": 10, "out_of_buffer": 11, "rx_icrc_encapsulated": 12, "req_cqe_error": 13,
        "resp_cqe_error": 14, "lifespan": 10, "rx_new_thing": 15,
    }  # fmt: skip
    tree.counters(tree.sysfs / "class/infiniband/mlx5_0/ports/1/hw_counters", files)
    watched.look()
    shown = {}
    for file, metric in HARDWARE_COUNTERS.items():
        shown[file] = watched.value(metric.name, device=FIRST, port="1")
        assert "mlx5_1" not in watched.labelled(metric.name, "device"), "it has no such folder"
    assert shown == {file: number for file, number in files.items() if file not in {"lifespan", "rx_new_thing"}}
    assert watched.value("infiniband_read_errors_total", device=FIRST) == 0
    tree.counters(tree.sysfs / "class/infiniband/mlx5_0/ports/1/hw_counters", {"roce_adp_retrans": 7})
    watched.look()
    assert watched.value("infiniband_adaptive_retransmissions_total", device=FIRST, port="1") == 7


def test_the_errors_of_all_ports_are_summed_up_by_their_kind(tree: NodeTree, watched: Watched) -> None:
    watched.look()
    name = "infiniband_node_errors_total"
    assert watched.value(name, error="symbol") == 0, "what was counted before would look like a burst"
    for device, value in ((FIRST, 100), ("mlx5_3", 5)):
        tree.counters(tree.sysfs / f"class/infiniband/{device}/ports/1/counters", {"symbol_error": value})
    watched.look()
    watched.look()
    assert watched.value(name, error="symbol") == 102
    assert watched.value(name, error="link_downed") == 0
    assert watched.value("infiniband_node_tx_packets_total") == 0
