"""What the rules read of the node's EFA traffic never jumps for another reason than traffic."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nodes.fixtures import p4d
from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from trainwarden_exporter.collectors.rdma.efa import EfaCollector
from trainwarden_exporter.collectors.rdma.efa_device import NodeTotals
from trainwarden_exporter.core.metric import Families

TX = "efa_node_tx_bytes_total"


def shown(totals: NodeTotals) -> dict[str, float]:
    families = Families()
    totals.add_to(families)
    return {family.metric.name: family.rows[0].value for family in families.collected()}


def counted(*steps: tuple[str, int]) -> float:
    totals = NodeTotals(10.0)
    for device, value in steps:
        totals.count(device, "ports/1/hw_counters/tx_bytes", "tx_bytes", value)
    return shown(totals)[TX]


def test_traffic_of_all_devices_is_summed_up() -> None:
    assert counted(("a", 100), ("b", 10), ("a", 150), ("b", 11)) == 51


def test_a_device_that_comes_late_or_again_is_no_burst() -> None:
    assert counted(("a", 100), ("a", 101), ("b", 10**15), ("b", 10**15 + 1)) == 2


def test_a_device_that_counts_anew_counts_on() -> None:
    assert counted(("a", 10**15), ("a", 10**15 + 5), ("a", 3), ("a", 4)) == 9


def test_what_no_device_reports_is_absent() -> None:
    totals = NodeTotals(10.0)
    totals.count("a", "ports/1/hw_counters/rx_pkts", "rx_pkts", 5)
    assert shown(totals) == {}


def test_the_links_of_a_device_that_hangs_or_is_gone_are_not_exported() -> None:
    clock = [0.0]
    totals = NodeTotals(10.0, monotonic=lambda: clock[0])
    totals.down("hangs", 1)
    clock[0] = 9.0
    totals.down("lives", 2)
    totals.down("gone", 4)
    totals.forget("gone")
    assert shown(totals) == {"efa_node_ports_down": 3}
    clock[0] = 11.0
    assert shown(totals) == {"efa_node_ports_down": 2}


def test_links_are_exported_between_two_scrapes_that_are_a_minute_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = EfaCollector(p4d(tmp_path).sysfs, 5.0, 5.0)
    Watched(collector).look()
    later = time.monotonic() + 60.0
    monkeypatch.setattr(collector._totals, "_monotonic", lambda: later)
    assert shown(collector._totals)["efa_node_ports_down"] == 0
    collector.close()


def test_failed_reads_and_writes_are_one_sum() -> None:
    totals = NodeTotals(10.0)
    for value in (7, 9):
        totals.count("a", "ports/1/hw_counters/rdma_read_wr_err", "rdma_read_wr_err", value)
        totals.count("a", "ports/1/hw_counters/rdma_write_wr_err", "rdma_write_wr_err", value + 1)
    assert shown(totals) == {"efa_node_work_request_errors_total": 4}


def test_the_device_that_was_silent_longest_is_shown() -> None:
    clock = [1000.0]
    totals = NodeTotals(10.0, now=lambda: clock[0])

    def beat(device: str, value: int) -> None:
        totals.count(device, "hw_counters/keep_alive_rcvd", "keep_alive_rcvd", value)

    beat("a", 5)
    beat("never sends any", 0)
    assert shown(totals) == {}, "when its count last moved is not known yet"
    clock[0] = 1001.0
    beat("a", 6)
    beat("b", 8)
    clock[0] = 1060.0
    beat("a", 6)
    beat("b", 9)
    beat("never sends any", 0)
    assert shown(totals) == {"efa_node_keep_alive_timestamp_seconds": 1001.0}
    totals.forget("a")
    assert shown(totals) == {"efa_node_keep_alive_timestamp_seconds": 1060.0}


def test_the_sums_hold_while_devices_go_and_come(tree: NodeTree, watch: Callable[..., Watched]) -> None:
    folders = {}
    for name, bus in (("a", "4f"), ("b", "50")):
        tree.pci(f"0000:{bus}:00.0", "0x1d0f", "0xefa2", "0x020000", 0)
        folders[name] = tree.rdma(name, f"0000:{bus}:00.0", firmware="1") / "ports/1/hw_counters"
        tree.counters(folders[name], {"tx_bytes": 1000, "rx_bytes": 2000, "retrans_bytes": 10})
    watched = watch(tree)
    watched.look()
    tree.counters(folders["a"], {"tx_bytes": 1100, "rx_bytes": 2010, "retrans_bytes": 11})
    watched.look()
    tree.remove_rdma("b")
    watched.look()
    assert [watched.value(f"efa_node_{name}_bytes_total") for name in ("tx", "rx", "retransmitted")] == [100, 10, 1]
