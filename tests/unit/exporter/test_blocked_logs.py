"""A log on a file system that never answers costs its own run and no other's."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.logs_tree import LATEST, OOM, LogsTree
from tests.unit.exporter.runs.silent_mount import silent_mount
from tests.waiting import wait_until
from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.template import Template


@pytest.fixture
def tree(tmp_path: Path) -> LogsTree:
    """Two runs whose logs answer, before and behind one whose log will not, and little patience."""
    tree = LogsTree(tmp_path, (Template.parse(f"{tmp_path}/scratch/{{run_id}}/*.out"),), timeout=1.0)
    for run_id in ("a", "m", "z"):
        tree.runs.metadata(run_id)
        tree.write(run_id, OOM)
        (tmp_path / "scratch" / run_id).mkdir(parents=True)
    tree.look()
    assert [tree.count(run_id, "cuda_oom") for run_id in ("a", "m", "z")] == [1, 1, 1]
    return tree


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is closed the log of `m` is not read."""
    opened, real = threading.Event(), Follower.read
    opened.set()

    def read(follower: Follower, limit: int) -> object:
        if f"/m/{LATEST}" in follower.path:
            opened.wait()
        return real(follower, limit)

    monkeypatch.setattr(Follower, "read", read)
    yield opened
    opened.set()


def stuck(tree: LogsTree) -> dict[str, str]:
    """The call that each run's logs are in."""
    found = map(dict, tree.samples.get("trainwarden_collector_stuck", {}))
    return {labels["device"]: labels["call"] for labels in found if labels["collector"] == "logs"}


def opened_below(folder: Path) -> list[str]:
    """The files below the folder that this process has open, removed ones too."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


def look_until(tree: LogsTree, done: Callable[[], bool]) -> None:
    def looked() -> bool:
        tree.look()
        return done()

    wait_until(looked)


def test_a_log_that_does_not_answer_is_named_and_the_others_are_read(tree: LogsTree, gate: threading.Event) -> None:
    gate.clear()
    for run_id in ("a", "m", "z"):
        tree.write(run_id, OOM)
    for _ in range(2):
        tree.look()
        assert stuck(tree) == {"m": "read"}
    assert [tree.count(run_id, "cuda_oom") for run_id in ("a", "m", "z")] == [2, None, 2]
    assert tree.value("trainwarden_log_errors_total", reason="blocked") == 2


def test_a_log_that_answers_again_is_read_on_and_nothing_twice(tree: LogsTree, gate: threading.Event) -> None:
    gate.clear()
    tree.write("m", OOM)
    tree.look()
    tree.write("m", OOM)
    assert stuck(tree) == {"m": "read"}
    gate.set()
    look_until(tree, lambda: tree.count("m", "cuda_oom") == 3)
    assert stuck(tree) == {}
    tree.restart()
    tree.look()
    assert tree.count("m", "cuda_oom") == 3


def test_the_view_of_a_run_whose_log_does_not_answer_stays_as_it_was(tree: LogsTree, gate: threading.Event) -> None:
    before = tree.shared.views["m"]
    gate.clear()
    tree.write("m", OOM)
    tree.look()
    assert stuck(tree) == {"m": "read"}
    assert tree.shared.views["m"] is before


def test_a_run_that_goes_while_its_log_does_not_answer_is_let_go_of(
    tree: LogsTree, gate: threading.Event, tmp_path: Path
) -> None:
    gate.clear()
    tree.write("m", OOM)
    tree.look()
    assert stuck(tree) == {"m": "read"}
    shutil.rmtree(tree.runs.folder("m"))
    (tmp_path / "scratch/m").rmdir()
    tree.look()
    assert "m" not in tree.shared.log_files
    assert opened_below(tree.runs.folder("m"))
    gate.set()
    look_until(tree, lambda: stuck(tree) == {})
    look_until(tree, lambda: not opened_below(tree.runs.folder("m")))


@pytest.mark.slow
def test_a_mount_of_logs_that_never_answers_costs_its_run_alone(tree: LogsTree, tmp_path: Path) -> None:
    for run_id in ("a", "z"):
        tree.write(run_id, OOM)
        (tmp_path / "scratch" / run_id / "1.out").write_text(f"another {OOM}")
    try:
        with silent_mount(tmp_path / "scratch" / "m"):
            for _ in range(7):  # one of them looks for runs without a record, through every folder
                tree.look()
                assert stuck(tree).keys() == {"m"}
            assert [tree.count(run_id, "cuda_oom") for run_id in ("a", "m", "z")] == [3, None, 3]
    except OSError as error:
        pytest.skip(f"FUSE cannot be mounted here: {error}")
    look_until(tree, lambda: tree.count("m", "cuda_oom") == 1)
