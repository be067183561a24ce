"""Whether the last checkpoint of a run is complete."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree
from tests.waiting import wait_until
from trainwarden.checkpoint.verdict import CheckpointVerdict
from trainwarden.record.clock import to_iso
from trainwarden.record.progress import Checkpoint
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs import checkpoints
from trainwarden_exporter.collectors.runs.checkpoints import CheckpointVerifier
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.collectors.runs.record import RunRecord
from trainwarden_exporter.core.line_budget import LineBudget

COMPLETE = CheckpointVerdict("complete", ("all of it",))


def tree_with(
    tmp_path: Path, verifier: CheckpointVerifier, path: str, size: int | None = None, step: int = 100
) -> RunsTree:
    tree = RunsTree(tmp_path / "runs", checkpoints=verifier)
    save(tree, path, size)
    return tree


def save(tree: RunsTree, path: str, size: int | None = None, step: int = 100) -> None:
    tree.metadata("r")
    checkpoint = {"path": path, "step": step, "time": to_iso(NOW), "size_bytes": size}
    tree.progress("r", checkpoint=checkpoint)


def verdict(tree: RunsTree) -> float | None:
    return tree.value("training_checkpoint_complete", run_id="r")


def test_a_checkpoint_that_is_all_there_is_complete_and_a_cut_one_is_not(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(16)
    whole.write_bytes(content)
    cut.write_bytes(content[:-4])
    tree = tree_with(tmp_path, CheckpointVerifier(), str(whole), len(content))
    wait_until(lambda: verdict(tree) == 1)
    save(tree, str(cut), len(content), step=200)
    wait_until(lambda: verdict(tree) == 0)


@cases("path", ["/not/mounted/here/step-100", "s3://bucket/step-100", "relative/step-100"])
def test_of_what_this_node_does_not_see_nothing_is_reported(tmp_path: Path, path: str) -> None:
    verifier = CheckpointVerifier()
    tree = tree_with(tmp_path, verifier, path)
    assert verdict(tree) is None
    wait_until(lambda: verifier.idle)
    assert verdict(tree) is None


def test_one_that_cannot_be_looked_at_is_unknown_and_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one below a folder that this user may not enter, which root cannot be refused."""
    verifier = CheckpointVerifier()
    tree = tree_with(tmp_path, verifier, f"/{'x' * 300}/step-100")
    assert verdict(tree) is None
    wait_until(lambda: "its checkpoint cannot be looked at" in caplog.text)
    assert verdict(tree) is None
    assert "Traceback" not in caplog.text


def test_each_checkpoint_is_looked_at_once(tmp_path: Path) -> None:
    looked: list[str] = []

    def judge(checkpoint: Checkpoint, _: int | None) -> CheckpointVerdict:
        looked.append(checkpoint.path)
        return COMPLETE

    tree = tree_with(tmp_path, CheckpointVerifier(judge), "/c/1")
    wait_until(lambda: verdict(tree) == 1)
    for _ in range(3):
        tree.text()
    save(tree, "/c/2", step=200)
    wait_until(lambda: verdict(tree) == 1)
    assert looked == ["/c/1", "/c/2"]


def test_the_verdict_on_an_older_checkpoint_is_not_exported_for_a_newer_one(tmp_path: Path) -> None:
    gate = threading.Event()

    def judge(checkpoint: Checkpoint, _: int | None) -> CheckpointVerdict:
        if checkpoint.path == "/c/2":
            gate.wait()
        return COMPLETE

    tree = tree_with(tmp_path, CheckpointVerifier(judge), "/c/1")
    wait_until(lambda: verdict(tree) == 1)
    save(tree, "/c/2", step=200)
    assert verdict(tree) is None, "the collector does not wait for it either"
    gate.set()
    wait_until(lambda: verdict(tree) == 1)


def test_only_the_exporter_that_owns_the_run_looks(tmp_path: Path) -> None:
    looked: list[str] = []

    def judge(checkpoint: Checkpoint, _: int | None) -> CheckpointVerdict:
        looked.append(checkpoint.path)
        return COMPLETE

    verifier = CheckpointVerifier(judge)
    tree = tree_with(tmp_path, verifier, "/c/1")
    tree.metadata("r", host="node2")
    tree.rank("r", 1)
    tree.text()
    wait_until(lambda: verifier.idle)
    assert looked == []


def test_the_step_of_the_newest_checkpoint_that_its_writer_has_verified(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    saved = [{"path": f"/c/{step}", "step": step, "time": to_iso(NOW - 90)} for step in (30, 20, 10)]
    verified = {"verified_time": to_iso(NOW - 60)}
    tree.progress("r", checkpoint=saved[0], checkpoints=saved)
    assert tree.value("training_checkpoint_verified_step", run_id="r") is None
    tree.progress("r", checkpoint=saved[0], checkpoints=[saved[0], saved[1] | verified, saved[2] | verified])
    assert tree.value("training_checkpoint_verified_step", run_id="r") == 20
    tree.progress("r", checkpoint=saved[0] | verified, checkpoints=[])
    assert tree.value("training_checkpoint_verified_step", run_id="r") == 30
    tree.progress("r", checkpoint=saved[0], checkpoints=[saved[1] | {"verified_time": "soon"}])
    assert tree.value("training_checkpoint_verified_step", run_id="r") is None


def test_a_user_who_names_many_checkpoints_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LineBudget", partial(LineBudget, 5, 0.0))

    def refuse(checkpoint: Checkpoint, owner: int | None) -> CheckpointVerdict | None:
        raise OSError("Permission denied")

    verifier = CheckpointVerifier(refuse, pause_factor=0.0)
    tree = tree_with(tmp_path, verifier, "/ckpt/0")
    for step in range(20):
        save(tree, f"/ckpt/{step}", step=step)
        tree.text()
        wait_until(lambda: verifier.idle)
    wait_until(lambda: any("checkpoint_lines_left_out" in line for line in caplog.messages))
    assert sum("cannot be looked at" in line for line in caplog.messages) == 5


def test_a_user_whose_checkpoints_hang_costs_no_other_its_verdict_and_they_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "RETRY_SECONDS", 0.01)
    answers = threading.Event()

    def verify(checkpoint: Checkpoint, owner: int | None) -> CheckpointVerdict:
        if owner == 1001 and not answers.is_set():
            threading.Thread(target=answers.wait, name="trainwarden-checkpoint", daemon=True).start()
            raise TimeoutError("no answer")
        return COMPLETE

    verifier = CheckpointVerifier(verify, pause_factor=0.0)
    tree, records = RunsTree(tmp_path / "runs"), dict[str, RunRecord]()

    def is_complete(run_id: str, owner: int) -> bool | None:
        return verifier.is_complete(records[run_id], owner)

    for run_id in ("h0", "h1", "h2", "h3", "h4", "w"):
        tree.metadata(run_id)
        tree.progress(run_id, checkpoint={"path": f"/{run_id}", "step": 1, "time": to_iso(NOW)})
        records[run_id] = RunFolder(tree.folder(run_id), Thresholds()).read(NOW)
    hanging = ("h0", "h1", "h2", "h3")
    assert [is_complete(run_id, 1001) for run_id in hanging] == [None] * 4
    wait_until(lambda: verifier.idle)
    assert is_complete("w", 1000) is None
    wait_until(lambda: is_complete("w", 1000) is True)
    assert is_complete("h4", 1001) is None
    answers.set()
    wait_until(lambda: is_complete("h4", 1001) is True)
