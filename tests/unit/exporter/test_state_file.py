"""The state of a node over a restart: which exporter writes it, and whose it is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.small_disk import small_disk
from tests.waiting import wait_until
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.state_file import HOLDER, StateFile, is_held_by, node_state


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("a\n")
    return Node("n1", tmp_path, tmp_path, tmp_path)


def test_a_second_exporter_reads_the_state_and_writes_it_once_the_first_has_ended(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two exporters on one folder would each restore what the other one counted."""
    caplog.set_level("INFO")
    state = tmp_path / "state"
    (state / "node-n1").mkdir(parents=True)
    for name in ("kernel", "xids"):
        (state / f"node-n1/{name}.json").write_text('{"version":1,"counts":13}')
    with (state / "node-n1/.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write("the first")
        first.flush()
        second = node_state({"path.state": state}, node, "kernel")
        xids = state / "node-n1/xids.json"
        child = StateFile(xids, may_write=lambda: is_held_by(HOLDER, xids.parent), retry_seconds=0.01)
        for file in (second, child):
            assert (file.read() or {})["counts"] == 13
            file.write({"counts": 0})
            assert (file.read() or {})["counts"] == 13
        assert "another exporter keeps its state there" in caplog.text
    wait_until(lambda: "the other exporter has ended" in caplog.text)
    wait_until(lambda: (child.read() or {})["counts"] == 0)
    second.write({"counts": 14})
    wait_until(lambda: (second.read() or {})["counts"] == 14)


def test_every_state_of_one_exporter_is_written_before_and_after_a_reload(node: Node, tmp_path: Path) -> None:
    for name in ("kernel", "xids", "kernel"):
        node_state({"path.state": tmp_path}, node, name).write({"name": name})
        assert (node_state({"path.state": tmp_path}, node, name).read() or {})["name"] == name


def test_the_state_of_another_machine_is_not_used(node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An image of a disk was made where an exporter ran: its counts are not those of the machines made from it."""
    flags = {"path.state": tmp_path}
    node_state(flags, node, "kernel").write({"counts": 13})
    (node.rootfs / "etc/machine-id").write_text("b\n")
    assert node_state(flags, node, "kernel").read() is None
    assert "is of another machine" in caplog.text
    (node.rootfs / "etc/machine-id").write_text("a\n")
    assert (node_state(flags, node, "kernel").read() or {})["counts"] == 13


def test_a_folder_that_cannot_be_made_costs_a_warning_when_it_is_written(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    state = node_state({"path.state": tmp_path / "file"}, node, "kernel")
    assert not caplog.records
    state.write({"counts": 1})
    assert "cannot be written" in caplog.text


@cases("what", ["cut off", "zeros", "of another version", "a folder", "a pipe"])
def test_what_is_no_state_is_put_aside_named_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    path = tmp_path / "state.json"
    StateFile(path).write({"counts": 13})
    if what in ("a folder", "a pipe"):
        path.unlink()
        path.mkdir() if what == "a folder" else os.mkfifo(path)
    else:
        whole = path.read_text()
        path.write_text({"cut off": whole[:20], "zeros": "\0" * 40}.get(what, whole.replace("1", "9", 1)))
    state = StateFile(path)
    assert state.read() is None
    assert f"{path} is not used" in caplog.text
    assert len(list(tmp_path.glob("state.json.damaged-*"))) == 1
    state.write({"counts": 14})
    assert (StateFile(path).read() or {})["counts"] == 14


@pytest.mark.process
def test_a_full_disk_costs_nothing_that_is_stored_and_what_came_meanwhile_is_stored_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        state = StateFile(disk.path / "state.json", retry_seconds=0.01)
        state.write({"counts": 13})
        disk.fill()
        for counts in (14, 15):
            state.write({"counts": counts, "much": "x" * 8192})
        assert (state.read() or {})["counts"] == 13
        assert caplog.text.count(f"{disk.path}/state.json cannot be written") == 1
        disk.free()
        wait_until(lambda: (state.read() or {}).get("counts") == 15)
        assert [each.name for each in disk.path.iterdir()] == ["state.json"]


def test_what_could_not_be_written_is_not_written_over_what_came_later(tmp_path: Path) -> None:
    (tmp_path / "node").touch()
    path = tmp_path / "node/state.json"
    state = StateFile(path, retry_seconds=0.01)
    for count in range(3):
        state.write({"counts": count})
    (tmp_path / "node").unlink()
    wait_until(lambda: (state.read() or {}).get("counts") == 2)
    state.write({"counts": 3})
    wait_until(lambda: (state.read() or {}).get("counts") == 3)
