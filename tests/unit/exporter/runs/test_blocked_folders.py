"""A folder on a file system that never answers costs its own run and no other's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.runs.silent_mount import silent_mount
from tests.unit.exporter.runs_tree import RunsTree
from tests.users import ANOTHER, needs_root
from tests.waiting import wait_until
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.collectors.runs.names import RunNames
from trainwarden_exporter.collectors.runs.record import RunRecord
from trainwarden_exporter.sampling.blocking_io import MAX_BLOCKED, BlockingIoPool, TooManyBlocked


@pytest.fixture
def tree(tmp_path: Path) -> RunsTree:
    """Two runs that answer, before and behind one that will not, and little patience."""
    tree = RunsTree(tmp_path / "runs", timeout=1.0)
    for run_id in ("a", "m", "z"):
        tree.metadata(run_id)
        tree.progress(run_id)
    return tree


def assert_only_m_is_missing(tree: RunsTree, call: str) -> None:
    samples = tree.samples()
    told = {dict(labels)["run_id"] for labels in samples["training_step"]}
    assert told == {"a", "z"}
    assert samples["trainwarden_runs_unreadable"][frozenset({("reason", "blocked")})] == 1
    stuck = {"collector": "runs", "device": "m", "call": call}
    assert samples["trainwarden_collector_stuck"] == {frozenset(stuck.items()): 1}


def test_a_mount_that_never_answers_costs_its_run_alone(tree: RunsTree) -> None:
    folder = tree.path / "m"
    try:
        with silent_mount(folder):
            assert_only_m_is_missing(tree, "stat")
            begun = threading.active_count()
            assert_only_m_is_missing(tree, "stat")
            # Fewer where a test before this one has left a thread that has ended now.
            assert threading.active_count() <= begun, "it is not tried again while it hangs"
    except OSError as error:
        pytest.skip(f"FUSE cannot be mounted here: {error}")
    wait_until(lambda: "m" in {dict(labels)["run_id"] for labels in tree.samples()["training_step"]})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is closed the folder of `m` does not answer."""
    opened, real = threading.Event(), RunFolder.read

    def record(folder: RunFolder, now: float) -> RunRecord:
        if folder.run_id == "m":
            opened.wait()
        return real(folder, now)

    monkeypatch.setattr(RunFolder, "read", record)
    yield opened
    opened.set()


def test_a_folder_that_answers_again_is_reported_again(tree: RunsTree, gate: threading.Event) -> None:
    assert_only_m_is_missing(tree, "stat")
    gate.set()
    wait_until(lambda: "trainwarden_collector_stuck" not in tree.samples())
    assert {dict(labels)["run_id"] for labels in tree.samples()["training_step"]} == {"a", "m", "z"}


def test_what_comes_back_too_late_is_not_exported_as_new() -> None:
    opened = threading.Event()
    reader: BlockingIoPool[str] = BlockingIoPool(timeout=1.0)

    def slow(key: str) -> str:
        if key == "slow":
            opened.wait()
        return key

    found = reader.map(["slow", "quick"], slow)
    opened.set()
    assert found == {"quick": "quick"}
    wait_until(lambda: reader.map(["slow"], slow) == {"slow": "slow"})


def test_many_that_hang_are_the_trouble_of_the_whole_collector() -> None:
    opened = threading.Event()
    reader: BlockingIoPool[int] = BlockingIoPool(timeout=0.01)
    try:
        with pytest.raises(TooManyBlocked):
            reader.map(range(100), lambda _: opened.wait())
        assert sum(thread.name == "blocking-io" for thread in threading.enumerate()) <= MAX_BLOCKED + 1
    finally:
        opened.set()


@needs_root
def test_a_user_with_many_folders_that_hang_hides_no_run_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dead mount and a link to it for each run is all that it takes."""
    tree = RunsTree(tmp_path / "runs", timeout=0.2)
    for run_id in (*(f"hangs-{number:02d}" for number in range(MAX_BLOCKED + 8)), "a", "z"):
        tree.metadata(run_id)
        if run_id.startswith("hangs"):
            os.chown(tree.path / run_id, ANOTHER, ANOTHER)
    opened, real = threading.Event(), RunFolder.read

    def record(folder: RunFolder, now: float) -> RunRecord:
        if folder.run_id.startswith("hangs"):
            opened.wait()
        return real(folder, now)

    monkeypatch.setattr(RunFolder, "read", record)
    try:
        for _ in range(2):
            samples = tree.samples()
            assert {dict(labels)["run_id"] for labels in samples["training_run_attempt"]} == {"a", "z"}
            assert samples["trainwarden_runs_unreadable"][frozenset({("reason", "blocked")})] == MAX_BLOCKED + 8
            assert len(samples["trainwarden_collector_stuck"]) == MAX_BLOCKED
    finally:
        opened.set()


@needs_root
def test_folders_that_do_not_even_show_whose_they_are_hide_no_run_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = RunsTree(tmp_path / "runs", timeout=0.2)
    for run_id in ("a", "m", "z"):
        tree.metadata(run_id)
    assert {dict(labels)["run_id"] for labels in tree.samples()["training_run_attempt"]} == {"a", "m", "z"}
    opened, real_read, real_look = threading.Event(), RunFolder.read, RunNames._look  # lstat of a mount

    def read(folder: RunFolder, now: float) -> RunRecord:
        if folder.run_id.startswith("hangs"):
            opened.wait()
        return real_read(folder, now)

    def look(names: RunNames, name: str) -> tuple[int, float] | None:
        if name.startswith("hangs"):
            opened.wait()
        return real_look(names, name)

    monkeypatch.setattr(RunFolder, "read", read)
    monkeypatch.setattr(RunNames, "_look", look)
    for number in range(MAX_BLOCKED + 8):
        tree.metadata(f"hangs-{number:02d}")
        os.chown(tree.path / f"hangs-{number:02d}", ANOTHER, ANOTHER)
    try:
        for _ in range(2):
            assert {dict(labels)["run_id"] for labels in tree.samples()["training_run_attempt"]} == {"a", "m", "z"}
    finally:
        opened.set()


def test_where_the_keys_of_every_owner_hang_the_call_fails() -> None:
    opened = threading.Event()
    reader: BlockingIoPool[int] = BlockingIoPool(timeout=0.01, owner=lambda key: key % 2)
    try:
        with pytest.raises(TooManyBlocked):
            reader.map(range(100), lambda _: opened.wait())
        assert sum(thread.name == "blocking-io" for thread in threading.enumerate()) <= 2 * MAX_BLOCKED + 1
    finally:
        opened.set()
