"""The file systems under runs: each is asked once, and one that hangs costs only what is known of itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import RunsTree
from tests.users import ANOTHER, needs_root
from tests.waiting import wait_until
from trainwarden_exporter.collectors.runs import filesystems
from trainwarden_exporter.collectors.runs.filesystems import ASK_SECONDS, Room, RunFilesystems, ask_room, mount_points

MOUNTS = r"""22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:44 / {runs} rw,relatime shared:2 - lustre fsx@tcp:/fs rw
31 22 0:45 / /ckpt\040area rw,relatime - nfs4 10.0.0.1:/c rw
32 22 0:46 / /ckpt rw,relatime - nfs4 10.0.0.1:/d rw
"""


class Mounts:
    """Some mounts, of which any may hang."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.file = folder / "mountinfo"
        self.file.write_text(MOUNTS.format(runs=self.runs))
        self.asked: list[str] = []
        self.hanging: set[str] = set()
        self.released = threading.Event()
        self.seconds = 0.0
        self.filesystems = RunFilesystems(self.runs, mounts=self.file, ask=self.ask, clock=lambda: self.seconds)
        self.tree = RunsTree(self.runs, filesystems=self.filesystems)

    def ask(self, mount: str) -> Room:
        self.asked.append(mount)
        if mount in self.hanging:
            self.released.wait()
        if mount == "/ckpt area":
            raise OSError(5, "Input/output error")
        return Room(1e9, 4e9, 1000.0 if mount == "/" else None, 0.25)

    def lines(self) -> list[str]:
        """What is shown of file systems, without the prefix of the names."""
        page = self.tree.text().splitlines()
        return [line.removeprefix("training_filesystem_") for line in page if line.startswith("training_filesystem_")]


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Mounts]:
    made = Mounts(tmp_path)
    yield made
    made.released.set()


def test_each_file_system_is_asked_once_for_all_runs(mounts: Mounts) -> None:
    for run_id in ("one", "two"):
        mounts.tree.metadata(run_id, log_path="/var/log/{run_id}/*.out")
        mounts.tree.progress(run_id, checkpoint={"path": f"/ckpt/{run_id}/step_7"})
    wait_until(lambda: len(mounts.lines()) == 2 * (4 + 4 + 5))
    assert sorted(mounts.asked) == sorted(["/", "/ckpt", str(mounts.runs)])
    assert [line for line in mounts.lines() if 'run_id="one"' in line and 'use="record"' not in line] == [
        'answer_seconds{run_id="one",use="logs"} 0.25',
        'answer_seconds{run_id="one",use="checkpoints"} 0.25',
        'answering{run_id="one",use="logs"} 1.0',
        'answering{run_id="one",use="checkpoints"} 1.0',
        'avail_bytes{run_id="one",use="logs"} 1000000000.0',
        'avail_bytes{run_id="one",use="checkpoints"} 1000000000.0',
        'files_avail{run_id="one",use="logs"} 1000.0',
        'size_bytes{run_id="one",use="logs"} 4000000000.0',
        'size_bytes{run_id="one",use="checkpoints"} 4000000000.0',
    ]


def test_they_are_asked_again_only_after_a_while(mounts: Mounts) -> None:
    mounts.tree.metadata("r")
    wait_until(lambda: bool(mounts.lines()))
    mounts.lines()
    assert mounts.asked == [str(mounts.runs)]
    mounts.seconds = ASK_SECONDS
    wait_until(lambda: bool(mounts.lines()) and len(mounts.asked) == 2)


def test_one_that_hangs_holds_up_no_sample_and_is_asked_once(mounts: Mounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "TIMEOUT_SECONDS", 0.0)
    mounts.hanging = {"/ckpt"}
    mounts.tree.metadata("r")
    mounts.tree.progress("r", checkpoint={"path": "/ckpt/step_7"})
    wait_until(lambda: 'avail_bytes{run_id="r",use="record"} 1000000000.0' in mounts.lines())
    mounts.seconds = 5 * ASK_SECONDS
    assert 'answering{run_id="r",use="checkpoints"} 0.0' in mounts.lines()
    assert not [line for line in mounts.lines() if line.startswith("avail_bytes") and "checkpoints" in line]
    assert mounts.asked.count("/ckpt") == 1
    mounts.released.set()
    wait_until(lambda: 'answering{run_id="r",use="checkpoints"} 1.0' in mounts.lines())


def test_one_that_refuses_is_unknown(mounts: Mounts) -> None:
    mounts.tree.metadata("r")
    mounts.tree.progress("r", checkpoint={"path": "/ckpt area/x"})
    wait_until(lambda: any("record" in line for line in mounts.lines()))
    wait_until(lambda: "/ckpt area" in mounts.asked)
    assert not [line for line in mounts.lines() if "checkpoints" in line]


@pytest.mark.parametrize("path", ["relative/x", "", "../x"])
def test_a_path_that_names_no_place_has_no_file_system(mounts: Mounts, path: str) -> None:
    mounts.tree.metadata("r")
    mounts.tree.progress("r", checkpoint={"path": path})
    wait_until(lambda: any("record" in line for line in mounts.lines()))
    assert not [line for line in mounts.lines() if "checkpoints" in line]


def test_a_path_beside_a_mount_is_not_on_it(mounts: Mounts) -> None:
    mounts.tree.metadata("r")
    mounts.tree.progress("r", checkpoint={"path": "/ckpt/../ckpt2/x"})
    wait_until(lambda: any("checkpoints" in line for line in mounts.lines()))
    assert sorted(mounts.asked) == sorted(["/", str(mounts.runs)])


def test_of_a_run_that_has_ended_nothing_is_asked(mounts: Mounts) -> None:
    mounts.tree.metadata("r", status="succeeded")
    mounts.lines()
    mounts.lines()
    assert mounts.asked == []


def test_a_real_file_system_answers(tmp_path: Path) -> None:
    room, found = ask_room(str(tmp_path)), os.statvfs(tmp_path)
    assert room.size == found.f_blocks * found.f_frsize
    assert 0 <= room.seconds < 60
    assert "/" in mount_points(Path("/proc/self/mountinfo"))
    assert mount_points(tmp_path / "none") == ("/",)


def test_one_that_counts_no_blocks_is_not_full(tmp_path: Path) -> None:
    # As FUSE answers whoever may not use the mount, and as procfs does.
    room = ask_room("/proc")
    assert (room.available, room.size) == (None, None)
    made = Mounts(tmp_path)
    made.tree = RunsTree(
        made.runs, filesystems=RunFilesystems(made.runs, mounts=made.file, ask=lambda _: ask_room("/proc"))
    )
    made.tree.metadata("r")
    wait_until(lambda: bool(made.lines()))
    assert 'answering{run_id="r",use="record"} 1.0' in made.lines()
    assert not [line for line in made.lines() if line.startswith(("avail_bytes", "size_bytes"))]


@needs_root
def test_a_user_with_many_file_systems_takes_no_place_of_a_user_with_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "MAX_FILESYSTEMS", 4)
    made = Mounts(tmp_path)
    with made.file.open("a") as file:
        file.writelines(f"40 22 0:47 / /a{number} rw - fuse f rw\n" for number in range(10))
    for number in range(10):
        made.tree.metadata(f"many-{number}", log_path=f"/a{number}/{{run_id}}.out")
        os.chown(made.runs / f"many-{number}", ANOTHER, ANOTHER)
        os.chown(made.runs / f"many-{number}" / "metadata.json", ANOTHER, ANOTHER)
    made.tree.metadata("few")
    made.tree.progress("few", checkpoint={"path": "/ckpt/x"})
    wait_until(lambda: 'answering{run_id="few",use="checkpoints"} 1.0' in made.lines())
    assert len(set(made.asked)) == 4
