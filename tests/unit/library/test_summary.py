"""`summary.json` describes an attempt after every kind of end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.processes import Script

Starter = Callable[..., trainwarden.Run]


@pytest.fixture
def summary(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        document: dict[str, Any] = json.loads((tmp_path / "r" / "summary.json").read_text())
        return document

    return read


def test_a_success_is_summed_up(attempt: Starter, summary: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    checkpoint = tmp_path / "step-4.pt"
    checkpoint.write_bytes(b"1")
    with attempt(total_steps=4) as run:
        for step in range(1, 5):
            if step % 2:
                run.epoch(step // 2)
            run.step(step, loss=1 / step)
        run.checkpoint_saved(checkpoint)
        assert not (tmp_path / "r" / "summary.json").exists()
    said = summary()
    assert (said["run_id"], said["attempt"], said["attempt_key"]) == ("r", 0, "local:5:0")
    training = said["training"]
    assert (training["status"], training["reason"], training["final_metric"]) == ("completed", None, 0.25)
    assert (training["steps_completed"], training["epochs_completed"]) == (4, 2)
    assert training["checkpoint_path"] == str(checkpoint)
    assert training["start_time"] < training["end_time"]
    assert 0 < training["duration_seconds"] < 60
    assert training["script"] == "train.py"
    assert said["errors"] == []
    assert said["gpu_stats"] == {
        "samples": 0,
        "avg_allocated_mb": None,
        "max_allocated_mb": None,
        "max_reserved_mb": None,
        "peak_allocated_mb": None,
        "healthy_before_start": None,
    }


def test_what_is_not_known_is_null(attempt: Starter, summary: Callable[[], dict[str, Any]]) -> None:
    with attempt():
        pass
    training = summary()["training"]
    assert {name for name, value in training.items() if value is None} == {
        "epochs_completed",
        "final_metric",
        "first_step",
        "final_step",
        "final_loss",
        "tokens_per_second",
        "samples_per_second",
        "checkpoint_path",
        "reason",
        "failure",
    }


def test_a_metric_called_metric_is_the_final_one(attempt: Starter, summary: Callable[[], dict[str, Any]]) -> None:
    with attempt() as run:
        run.step(1, loss=3.0, metric=0.95)
    assert summary()["training"]["final_metric"] == 0.95


def test_steps_loss_and_mean_rates_of_the_attempt_are_kept_for_comparison(
    attempt: Starter, summary: Callable[[], dict[str, Any]]
) -> None:
    with attempt() as run:
        run.step(7, loss=3.0, tokens=100)
        run.step(8, loss=2.0, tokens=100)
    training = summary()["training"]
    assert (training["first_step"], training["final_step"], training["final_loss"]) == (7, 8, 2.0)
    assert training["tokens_per_second"] > 0
    assert training["samples_per_second"] is None


def test_a_failure_is_summed_up_with_its_last_errors(
    attempt: Starter, summary: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError), attempt() as run:
        run.epoch(0)
        for number in range(30):
            run.error(ValueError(f"error {number}"))
        run.epoch(1)
        raise RuntimeError("the last one")
    said = summary()
    assert (said["training"]["status"], said["training"]["reason"]) == ("failed", "the last one")
    assert said["training"]["epochs_completed"] == 1
    messages = [error["error_message"] for error in said["errors"]]
    assert messages == [*(f"error {number}" for number in range(11, 30)), "the last one"]
    assert all("traceback" not in error for error in said["errors"])


@pytest.mark.process
def test_a_cancelled_run_is_summed_up(script: Script) -> None:
    script.run("""
        import os, signal, trainwarden
        with trainwarden.run("r") as run:
            run.step(1)
            os.kill(os.getpid(), signal.SIGTERM)
    """)
    training = script.read("summary.json")["training"]
    assert (training["status"], training["reason"], training["steps_completed"]) == ("cancelled", "SIGTERM", 1)


def test_each_attempt_replaces_the_summary_of_the_one_before(
    attempt: Starter, summary: Callable[[], dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match="x"), attempt(0) as run:
        run.step(1)
        raise ValueError("x")
    with attempt(1) as run:
        run.step(2)
    said = summary()
    assert (said["attempt"], said["training"]["status"], said["errors"]) == (1, "completed", [])
    assert said["training"]["steps_completed"] == 2


def test_errors_of_other_ranks_of_the_same_attempt_are_in_it(
    attempt: Starter, summary: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    with attempt(0) as run:
        ranks = tmp_path / "r" / "ranks"
        for rank, key in ((1, "local:5:0"), (2, "local:4:0")):
            error = {"timestamp": "2001-01-01T00:00:00.000000Z", "rank": rank, "attempt_key": key, "traceback": "t"}
            (ranks / f"{rank}.errors.jsonl").write_text("half a line\n" + json.dumps(error) + "\n[]\n")
        (ranks / "7.errors.jsonl").symlink_to("/etc/passwd")
        run.error(ValueError("mine"))
    errors = summary()["errors"]
    assert [error["rank"] for error in errors] == [1, 0]
    assert all("traceback" not in error for error in errors)


def test_other_ranks_write_no_summary(attempt: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with attempt():
        pass
    assert not (tmp_path / "r" / "summary.json").exists()
