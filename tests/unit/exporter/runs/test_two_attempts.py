"""An older attempt that still lives beside the one that owns the record is exported, while it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree, opened_files
from tests.users import ANOTHER, needs_root

NAME = "training_superseded_attempt_info"


@pytest.fixture
def tree(tmp_path: Path) -> RunsTree:
    made = RunsTree(tmp_path / "runs")
    made.metadata("r", attempt=4)
    return made


def superseded(tree: RunsTree, attempt: int, modified: float = NOW, **keys: Any) -> Path:
    document = {"attempt": attempt, "status": "running", "host": "n7", "pid": 41, "step": 9, **keys}
    return tree.write("r", f"superseded.{attempt}.json", document, modified)


def rivals(tree: RunsTree) -> list[tuple[str, str, str]]:
    found = [dict(labels) for labels in tree.samples().get(NAME, ())]
    return [(each["attempt"], each["host"], each["pid"]) for each in found]


def test_it_is_exported_until_it_ends(tree: RunsTree) -> None:
    assert rivals(tree) == []
    superseded(tree, 3)
    superseded(tree, 2, host="n8", pid=None)
    assert rivals(tree) == [("2", "n8", ""), ("3", "n7", "41")]
    superseded(tree, 3, status="ended")
    (tree.path / "r" / "superseded.2.json").unlink()
    assert rivals(tree) == []


def test_one_that_has_written_nothing_lately_is_gone(tree: RunsTree) -> None:
    superseded(tree, 3, NOW - 40)
    assert rivals(tree) == [], "the record of the newer attempt is newer"
    superseded(tree, 3)
    assert len(rivals(tree)) == 1
    tree.now = NOW + 121
    assert rivals(tree) == []


def test_beside_a_run_that_has_ended_lives_no_other(tree: RunsTree) -> None:
    superseded(tree, 3)
    tree.metadata("r", attempt=4, status="failed")
    assert rivals(tree) == []


def test_files_of_a_strange_name_or_content_are_none(tree: RunsTree) -> None:
    superseded(tree, 0)
    superseded(tree, 4)
    superseded(tree, 5)
    tree.write("r", "superseded.3.json", '{"attempt": 2, "status": "running"}')
    tree.write("r", "superseded.2.json", b"\xff{")
    tree.write("r", "superseded.1.json", "[]")
    assert rivals(tree) == []
    assert tree.state("r") == "running"
    (tree.path / "r" / "superseded.3.json").unlink()
    os.mkfifo(tree.path / "r" / "superseded.3.json")
    assert rivals(tree) == []


def test_a_host_that_is_no_name_is_one_bounded_label(tree: RunsTree) -> None:
    superseded(tree, 3, host="n7\n\x00" + "x" * 10_000)
    [(_, host, _)] = rivals(tree)
    assert len(host) < 1000
    assert "\n" not in host


def test_a_file_that_did_not_change_is_not_read_again(tree: RunsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.now = NOW + 10
    superseded(tree, 3)
    assert len(rivals(tree)) == 1
    opened = opened_files(monkeypatch)
    assert len(rivals(tree)) == 1
    assert [name for name in opened if name.startswith("superseded")] == []


@needs_root
def test_a_file_of_another_user_is_none(tree: RunsTree) -> None:
    os.chown(tree.path / "r", ANOTHER, ANOTHER)
    os.chown(tree.path / "r" / "metadata.json", ANOTHER, ANOTHER)
    path = superseded(tree, 3)
    path.chmod(0o600)
    assert rivals(tree) == []
