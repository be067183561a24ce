"""Every counter of an EFA device is shown once, wherever the driver keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cases import cases
from tests.nodes.efa_devices import add_efa
from tests.nodes.fixtures import p5
from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from trainwarden_exporter.collectors.rdma.efa_metrics import DEVICE, NO_COUNTERS, PORT, metric_name

Watch = Callable[..., Watched]


def add(tree: NodeTree, driver: str = "2.17.2", address: str = "0000:4f:00.0", place: int = 0) -> Path:
    return add_efa(tree, address, place, device_id="0xefa2", numa=0, driver=driver)


def test_every_counter_of_32_devices_has_the_value_of_its_file(tmp_path: Path, watch: Watch) -> None:
    tree = p5(tmp_path)
    watched = watch(tree)
    watched.look()
    devices = sorted((tree.sysfs / "class/infiniband").iterdir())
    assert len(devices) == 32
    for device in devices:
        for folder, labels in (("hw_counters", {}), ("ports/1/hw_counters", {"port": "1"})):
            files = [file for file in (device / folder).iterdir() if file.name not in NO_COUNTERS]
            assert len(files) >= 12
            for file in files:
                shown = watched.value(metric_name(file.name), device=device.name, **labels)
                assert shown == float(file.read_text()), file
    assert watched.labelled("efa_read_errors_total", "device") == dict.fromkeys((path.name for path in devices), 0.0)


def test_a_driver_that_keeps_all_counters_with_the_port_shows_each_once(tree: NodeTree, watch: Watch) -> None:
    folder = add(tree, driver="1.13.0")
    assert not (folder / "hw_counters").exists()
    watched = watch(tree)
    watched.look()
    assert watched.success == 1
    for file in (folder / "ports/1/hw_counters").iterdir():
        if file.name in DEVICE:
            assert watched.samples[metric_name(file.name)] == {
                frozenset({("device", "rdmap79s0")}): float(file.read_text())
            }
        elif file.name in PORT:
            assert watched.value(metric_name(file.name), device="rdmap79s0", port="1") == float(file.read_text())
    assert "lifespan" not in watched.page


def test_of_a_counter_that_is_in_both_places_the_one_where_it_belongs_counts(tree: NodeTree, watch: Watch) -> None:
    folder = add(tree)
    tree.counters(folder / "ports/1/hw_counters", {"mmap_err": 111, "tx_bytes": 222})
    tree.counters(folder / "hw_counters", {"mmap_err": 333, "tx_bytes": 444})
    watched = watch(tree)
    watched.look()
    assert watched.samples["efa_mmap_errors_total"] == {frozenset({("device", "rdmap79s0")}): 333}
    assert watched.samples["efa_tx_bytes_total"] == {frozenset({("device", "rdmap79s0"), ("port", "1")}): 222}


def test_a_counter_of_the_port_that_only_the_device_has_is_the_ports(tree: NodeTree, watch: Watch) -> None:
    folder = add(tree)
    (folder / "ports/1/hw_counters/rx_drops").rename(folder / "hw_counters/rx_drops")
    (folder / "hw_counters/rx_drops").write_text("5\n")
    watched = watch(tree)
    watched.look()
    assert watched.value("efa_rx_drops_total", device="rdmap79s0", port="1") == 5


def test_an_unknown_counter_is_shown_by_its_name(tree: NodeTree, watch: Watch) -> None:
    folder = add(tree)
    tree.counters(folder / "ports/1/hw_counters", {"new_port_thing": 5})
    tree.counters(folder / "hw_counters", {"new_device_thing": 6})
    watched = watch(tree)
    watched.look()
    assert watched.value("efa_hw_value", device="rdmap79s0", port="1", name="new_port_thing") == 5
    assert watched.value("efa_hw_value", device="rdmap79s0", port="", name="new_device_thing") == 6
    assert len(watched.samples["efa_hw_value"]) == 2


def test_a_value_that_changes_is_read_anew(tree: NodeTree, watch: Watch) -> None:
    folder = add(tree)
    watched = watch(tree)
    for value in (17, 18_446_744_073_709_551_615):
        (folder / "ports/1/hw_counters/tx_bytes").write_text(f"{value}\n")
        watched.look()
        assert watched.value("efa_tx_bytes_total", device="rdmap79s0", port="1") == float(value)


@cases(
    ("counter", "name"),
    [
        ("tx_pkts", "efa_tx_packets_total"),
        ("recv_wrs", "efa_recv_work_requests_total"),
        ("rdma_read_wr_err", "efa_rdma_read_work_request_errors_total"),
        ("retrans_timeout_events", "efa_retransmission_timeouts_total"),
        ("cmds_err", "efa_command_errors_total"),
    ],
)
def test_the_words_of_a_name_are_written_out(counter: str, name: str) -> None:
    assert metric_name(counter) == name
