"""Whatever stands in the place of a counter costs that counter alone, and is counted."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.nodes.efa_devices import add_efa
from tests.nodes.tree import NodeTree
from tests.nodes.watched import Watched
from trainwarden_exporter.collectors.rdma.files import DeviceFiles, KeptFile

Watch = Callable[..., Watched]


def with_two_devices(tree: NodeTree) -> NodeTree:
    for place, bus in enumerate(("4f", "50")):
        add_efa(tree, f"0000:{bus}:00.0", place, device_id="0xefa2", numa=0, driver="2.17.2")
    return tree


def tree_in(folder: Path) -> NodeTree:
    return with_two_devices(NodeTree(folder))


def counters_of(tree: NodeTree) -> Path:
    """The folder of the counters of the first device."""
    return tree.sysfs / "class/infiniband/rdmap79s0/ports/1/hw_counters"


@pytest.fixture
def counters(tree: NodeTree) -> Path:
    return counters_of(with_two_devices(tree))


def pipe(file: Path) -> None:
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.mkdir()


def loop(file: Path) -> None:
    file.symlink_to(file)


def text(content: bytes) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        file.write_bytes(content)

    return write


HOSTILE = {
    "pipe": pipe,
    "folder": folder,
    "loop": loop,
    "empty": lambda file: file.touch(),
    "junk": text(b"\xff\x00\xfe\x1b[31m"),
    "words": text(b"no such counter\n"),
    "huge": text(b"1" + b"0" * 30 + b"\n"),
    "above 64 bits": text(b"18446744073709551616\n"),
    "negative": text(b"-1\n"),
    "fraction": text(b"1.5\n"),
    "exponent": text(b"1e5\n"),
    "endless": text(b"7" * 100_000),
}


@cases("place", HOSTILE.values(), ids=HOSTILE, tree=tree_in)
def test_what_is_no_counter_costs_its_own_series_alone(
    tree: NodeTree, watch: Watch, place: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    counter = counters_of(tree) / "tx_bytes"
    counter.unlink()
    place(counter)
    watched = watch(tree)
    for look in (1, 2):
        watched.look()
        assert watched.labelled("efa_tx_bytes_total", "device") == {"rdmap80s0": 2 * 10**9}
        assert watched.value("efa_rx_bytes_total", device="rdmap79s0", port="1") == 10**9 + 14
        assert watched.labelled("efa_read_errors_total", "device") == {"rdmap79s0": look, "rdmap80s0": 0}
        assert watched.success == 1
    assert len([record for record in caplog.records if "tx_bytes" in record.getMessage()]) == 1


@cases("content", [b"ACTIVE\n", b"\xff\xfe", b"", b"99999: ?\n"], tree=tree_in)
def test_a_state_that_is_none_is_not_shown_and_counted(tree: NodeTree, watch: Watch, content: bytes) -> None:
    (counters_of(tree).parent / "state").write_bytes(content)
    watched = watch(tree)
    watched.look()
    assert watched.labelled("efa_port_up", "device") == {"rdmap80s0": 1}
    assert watched.labelled("efa_port_physical_state", "device") == {"rdmap79s0": 5, "rdmap80s0": 5}
    assert watched.value("efa_read_errors_total", device="rdmap79s0") == 1
    assert watched.value("efa_node_ports_down") == 0


def test_odd_names_of_files_break_no_page(tree: NodeTree, watch: Watch, counters: Path) -> None:
    for name in ('quo"te', "new\nline", "x" * 200, "ünicode", " ", "good_one"):
        (counters / name).write_text("1\n")
    (counters / os.fsdecode(b"\xff\xfe")).write_text("1\n")
    watched = watch(tree)
    watched.look()
    assert watched.labelled("efa_hw_value", "name") == {"good_one": 1}


def test_a_device_of_128_ports_is_read(tree: NodeTree, watch: Watch) -> None:
    tree.pci("0000:4f:00.0", "0x1d0f", "0xefa2", "0x020000", 0)
    folder = tree.rdma("wide", "0000:4f:00.0", firmware="1", ports=128)
    for port in range(1, 129):
        tree.counters(folder / f"ports/{port}/hw_counters", {"tx_bytes": port, "rx_bytes": port, "mmap_err": port})
    watched = watch(tree)
    watched.look()
    assert watched.labelled("efa_tx_bytes_total", "port") == {str(port): port for port in range(1, 129)}
    assert watched.samples["efa_mmap_errors_total"] == {frozenset({("device", "wide")}): 1}


def test_a_device_that_goes_between_the_list_and_the_read_costs_itself_alone(
    tree: NodeTree, watch: Watch, counters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch(tree)
    watched.look()
    collector = watched.group.collector
    parts = {part.device: part for part in collector.tasks()}
    collector.collect()
    tree.remove_rdma("rdmap79s0")
    with pytest.raises(FileNotFoundError):
        parts["rdmap79s0"].read()
    assert list(parts["rdmap80s0"].read())
    watched.look()
    assert watched.labelled("efa_device_up", "device") == {"rdmap79s0": 0, "rdmap80s0": 1}


def test_a_counter_that_goes_away_is_given_up_and_found_again(tree: NodeTree, watch: Watch, counters: Path) -> None:
    watched = watch(tree)
    watched.look()
    (counters / "tx_bytes").rename(counters / "put_away")
    watched.group.collector.close()
    for _ in range(2):
        watched.look()
    assert watched.labelled("efa_tx_bytes_total", "device") == {"rdmap80s0": 2 * 10**9}
    assert watched.value("efa_hw_value", device="rdmap79s0", port="1", name="put_away") == 10**9


@cases("code", [errno.ENODEV, errno.ESTALE, errno.ENOENT])
def test_a_file_that_its_driver_made_anew_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "counter"
    path.write_text("1\n")
    file = KeptFile(str(path), below=10_000)
    assert file.read() == b"1\n"
    path.unlink()
    path.write_text("2\n")
    assert file.read() == b"1\n", "it is kept"
    real = os.pread
    failed: list[int] = []

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if not failed:
            failed.append(descriptor)
            raise OSError(code, "gone")
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert file.read() == b"2\n"
    file.close()


@pytest.mark.slow
def test_a_device_that_blocks_costs_the_others_nothing_and_is_named(
    tree: NodeTree, watch: Watch, counters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    real = KeptFile.read

    def read(self: KeptFile) -> bytes:
        if self.path.endswith("rdmap79s0/ports/1/hw_counters/rx_pkts"):
            ends.wait()
        return real(self)

    monkeypatch.setattr(KeptFile, "read", read)
    watched = watch(tree, timeout=2.0)
    watched.look()
    try:
        assert watched.labelled("efa_tx_bytes_total", "device") == {"rdmap80s0": 2 * 10**9}
        assert watched.labelled("efa_device_up", "device") == {"rdmap79s0": 1, "rdmap80s0": 1}
        call = "read ports/1/hw_counters/rx_pkts"
        assert watched.value("trainwarden_collector_stuck", collector="efa", device="rdmap79s0", call=call) == 1
        assert watched.success == 0
        assert not watched.group.release()
    finally:
        ends.set()


def test_a_device_that_may_not_be_looked_at_costs_itself_alone_until_it_may(
    tree: NodeTree, watch: Watch, counters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = str(counters.parents[2] / "device")
    real = os.stat, os.open

    def refused(call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(path: Any, *arguments: Any, **named: Any) -> Any:
            if str(path).startswith(closed):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return call(path, *arguments, **named)

        return ask

    watched = watch(tree)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refused(real[0]))
        patched.setattr(os, "open", refused(real[1]))
        watched.look()
    assert watched.labelled("efa_device_up", "device") == {"rdmap80s0": 1}
    assert set(watched.labelled("efa_tx_bytes_total", "device")) == {"rdmap80s0"}
    watched.look()
    assert watched.labelled("efa_device_up", "device") == {"rdmap79s0": 1, "rdmap80s0": 1}
    assert set(watched.labelled("efa_tx_bytes_total", "device")) == {"rdmap79s0", "rdmap80s0"}


def test_what_is_listed_and_gone_is_listed_anew(tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters/old").write_text("1\n")
    device = DeviceFiles(str(tmp_path), below=0)
    with device as files:
        assert files.names("counters") == ("old",)
    (tmp_path / "counters/old").rename(tmp_path / "counters/new")
    with device as files:
        assert files.names("counters") == ("old",)
        assert files.counter("counters/old") is None
        assert files.text("counters/none", str) is None
    with device as files:
        assert files.names("counters") == ("new",)
        assert files.errors == 1
