"""How a run is, from its record: the states and the words of the S3 heartbeat monitor."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.runs.records import NOW, RUN, close, foreign_run, write
from trainwarden.identity import host_name
from trainwarden.record.clock import to_iso
from trainwarden.runs.assessment import assess


@cases(
    ("age", "progress_age", "status", "reason"),
    [
        (0, 0, "RUNNING", ""),
        (599, 599, "RUNNING", ""),
        (0, None, "RUNNING", ""),
        (601, 601, "TIMED_OUT", "Both heartbeats stale (>10m)"),
        (601, None, "TIMED_OUT", "Heartbeat stale (>10m): metadata.json, the only one"),
        (0, 601, "WARNING", "Progress heartbeat stale (>10m): the process lives, its loop does not move"),
        (601, 0, "WARNING", "Metadata heartbeat stale (>10m): the loop moves, the record is not kept"),
    ],
)
def test_two_heartbeats_decide(
    tmp_path: Path, age: float, progress_age: float | None, status: str, reason: str
) -> None:
    found = assess(foreign_run(tmp_path, age=age, progress_age=progress_age), NOW)
    assert (found.status, found.reason) == (status, reason)
    assert found.is_bad is (status != "RUNNING")


def test_what_a_timeout_shows_is_what_a_person_needs(tmp_path: Path) -> None:
    found = assess(foreign_run(tmp_path, age=700, progress_age=700), NOW)
    assert found.action == "SSH to instance and check: training.log, nvidia-smi, disk space"
    assert found.instance_id == "i-01fa5b57d64c6196a"
    assert found.phase == "training"
    assert found.last_log == "Step 1500/5000, loss: 2.134"
    assert found.duration_seconds == 127 * 60 + 24 - 700


def test_stale_minutes_come_before_what_the_record_states(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path, age=100, progress_age=100)
    assert assess(folder, NOW, 60).status == "TIMED_OUT"
    write(folder / "metadata.json", last_update=to_iso(NOW - 100), thresholds={"stale_seconds": 50})
    assert assess(folder, NOW).status == "TIMED_OUT"
    assert assess(folder, NOW, 600).status == "RUNNING"


def test_a_plain_error_is_a_failure_with_its_cause_and_its_remedy(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    (folder / "_error").write_text("CUDA out of memory\n")
    found = assess(folder, NOW)
    assert (found.status, found.reason) == ("FAILED", "Error: CUDA out of memory")
    assert (found.error_type, found.action) == ("oom", "Reduce batch size or sequence length")
    (folder / "_error").write_text("something odd\n")
    assert "_error" in assess(folder, NOW).action


@cases("error", [None, "", " \n"])
def test_a_failure_without_an_error_sends_nobody_to_its_file(tmp_path: Path, error: str | None) -> None:
    folder = foreign_run(tmp_path)
    if error is None:
        metadata = json.loads((folder / "metadata.json").read_text())
        (folder / "metadata.json").write_text(json.dumps({**metadata, "status": "failed"}))
    else:
        (folder / "_error").write_text(error)
    found = assess(folder, NOW)
    assert (found.status, found.reason) == ("FAILED", "Error: no reason recorded")
    assert found.action == "Read the end of logs/training_log_latest.txt: no error is recorded"


def test_an_error_of_an_earlier_attempt_is_none_of_this_one(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    write(
        folder / "metadata.json", status="running", last_update=to_iso(NOW), attempt_key="slurm:1:1",
        attempt_start_time=to_iso(NOW - 50),
    )  # fmt: skip
    write(folder / "_error", message="lost", attempt_key="slurm:1:0", time=to_iso(NOW - 60))
    write(folder / "progress.json", step=1, attempt_key="slurm:1:0", last_updated=to_iso(NOW - 9000))
    assert assess(folder, NOW).status == "RUNNING"


def test_a_run_that_stopped_before_its_last_step_is_not_called_complete(tmp_path: Path) -> None:
    with trainwarden.run("early", dir=tmp_path, total_steps=50) as run:
        run.step(20)
    found = assess(tmp_path / "early", time.time())
    assert (found.status, found.reason) == ("SUCCEEDED", "ended at step 20 of 50")


def test_without_heartbeats_a_run_is_awaited_and_then_never_started(tmp_path: Path) -> None:
    folder = tmp_path / RUN
    folder.mkdir()
    (folder / "config.yaml").write_text("")
    for path in (folder / "config.yaml", folder):
        os.utime(path, (NOW - 30, NOW - 30))
    assert assess(folder, NOW).status == "PENDING"
    found = assess(folder, NOW + 700)
    assert (found.status, found.reason) == ("TIMED_OUT", "No heartbeat files: never started (>10m)")


def test_an_evaluation_may_take_longer_than_a_step(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path, progress_age=700)
    write(folder / "metadata.json", status="running", phase="eval", last_update=to_iso(NOW))
    assert assess(folder, NOW).status == "RUNNING"
    assert assess(folder, NOW + 1200).status == "TIMED_OUT"


def test_a_time_in_the_future_does_not_keep_a_run_alive(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path, age=-9000, progress_age=-9000)
    for name in ("metadata.json", "progress.json"):
        os.utime(folder / name, (NOW - 700, NOW - 700))
    assert assess(folder, NOW).status == "TIMED_OUT"


def test_a_broken_heartbeat_counts_by_its_file_and_is_named(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path, progress_age=None)
    (folder / "metadata.json").write_text("{")
    os.utime(folder / "metadata.json", (NOW - 5, NOW - 5))
    found = assess(folder, NOW)
    assert found.status == "RUNNING"
    assert "metadata.json" in found.notes[0]


def test_a_process_that_is_gone_is_noticed_at_once_on_its_own_host_alone(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    write(folder / "metadata.json", status="running", last_update=to_iso(NOW), host=host_name(), pid=2**22 + 7)
    assert "gone" in assess(folder, NOW).reason
    assert assess(folder, NOW, fetched=True).status == "RUNNING"


def test_no_secret_and_no_escape_leaves_the_record(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    (folder / "_error").write_text("login failed: password=hunter2 \x1b[31m\n")
    (folder / "logs/training_log_latest.txt").write_text("export HF_TOKEN=hf_abcdefghijklmnop\n")
    shown = str(assess(folder, NOW).to_json())
    assert "hunter2" not in shown and "hf_abc" not in shown and "\\x1b" not in shown


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    (tmp_path / "private").write_text("a line of root's\n")
    (folder / "logs/training_log_latest.txt").unlink()
    (folder / "logs/training_log_latest.txt").symlink_to(tmp_path / "private")
    assert assess(folder, NOW).last_log is None


@cases(
    ("error", "told"),
    [
        ({"message": "'vocab'", "exception_type": "KeyError"}, "Error: KeyError: 'vocab'"),
        ({"message": "KeyError: 'vocab'", "exception_type": "KeyError"}, "Error: KeyError: 'vocab'"),
        ({"message": "exit status 3", "exception_type": "SystemExit"}, "Error: exit status 3"),
    ],
)
def test_a_failure_is_told_with_the_type_of_its_exception(tmp_path: Path, error: dict[str, str], told: str) -> None:
    folder = foreign_run(tmp_path)
    write(folder / "_error", time=to_iso(NOW), **error)
    assert assess(folder, NOW).reason == told


@pytest.mark.parametrize("age", [0, 10**6])
def test_a_folder_that_cannot_be_entered_is_neither_awaited_nor_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float
) -> None:
    folder = foreign_run(tmp_path)
    os.utime(folder, (NOW - age, NOW - age))
    close(monkeypatch, folder)
    found = assess(folder, NOW)
    assert (found.status, found.is_bad) == ("UNKNOWN", False)
    assert found.reason == f"Cannot be read: {folder}/metadata.json: Permission denied"


@cases("age", [0, 700])
@cases("name", ["metadata.json", "progress.json", "_error", "_complete"])
def test_a_file_that_would_decide_and_cannot_be_opened_leaves_the_status_unknown(
    tmp_path: Path, name: str, age: float
) -> None:
    folder = foreign_run(tmp_path, age=age, progress_age=age)
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    assert assess(folder, NOW).status == "UNKNOWN"


def test_an_end_that_was_read_is_not_in_doubt(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path)
    (folder / "_error").write_text("CUDA out of memory")
    (folder / "progress.json").unlink()
    (folder / "progress.json").mkdir()
    assert assess(folder, NOW).status == "FAILED"
