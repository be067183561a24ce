"""What `exec` and shell commands record is copied to S3 too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store

ROOT = Path(__file__).resolve().parents[3]


def _call(store: Store, runs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TRAINWARDEN_RUNS_DIR": str(runs),
        "TRAINWARDEN_RUN_ID": "r",
        "TRAINWARDEN_S3_URL": store.url,
        "TRAINWARDEN_ATTEMPT_KEY": "slurm:7:0",
    }
    command = [sys.executable, "-m", "trainwarden", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_wrapped_command_leaves_its_record_and_its_log(store: Store, tmp_path: Path) -> None:
    done = _call(store, tmp_path, "exec", "--", "sh", "-c", "echo said; exit 4")
    assert (done.returncode, done.stdout, done.stderr) == (4, "said\n", "")
    assert store.document("metadata.json")["status"] == "failed"
    assert store.document("_error")["exit_code"] == 4
    assert store.read("logs/training_log_latest.txt") == b"said\n"


@pytest.mark.process
def test_a_completion_that_is_withdrawn_is_withdrawn_there_too(store: Store, tmp_path: Path) -> None:
    train = "import trainwarden\nwith trainwarden.run() as run:\n    run.step(1)\nraise OSError('the export failed')"
    done = _call(store, tmp_path, "exec", "--", sys.executable, "-c", train)
    assert done.returncode == 1
    assert not (tmp_path / "r" / "_complete").exists()
    assert "_complete" not in store.names()
    assert "the export failed" in store.document("_error")["message"]
    assert store.document("metadata.json")["status"] == "failed"


def test_a_shell_command_copies_what_it_wrote_before_it_ends(store: Store, tmp_path: Path) -> None:
    assert _call(store, tmp_path, "heartbeat", "--step", "3").returncode == 0
    assert store.document("progress.json")["step"] == 3
    assert store.document("metadata.json")["status"] == "running"
    assert _call(store, tmp_path, "complete").returncode == 0
    assert store.document("_complete")["step"] == 3
    assert store.document("metadata.json")["status"] == "succeeded"
    done = _call(store, tmp_path, "fail", "late")
    assert (done.returncode, "_error" in store.names()) == (1, False)


def test_an_attempt_on_a_new_node_goes_on_from_what_s3_holds(store: Store, tmp_path: Path) -> None:
    _call(store, tmp_path / "old", "heartbeat", "--step", "30")
    _call(store, tmp_path / "new", "heartbeat", "--step", "20")
    assert store.document("progress.json")["high_water"] == 30


def test_s3_that_is_away_delays_a_command_for_seconds_and_fails_none(
    store: Store, s3: FaultyServer, tmp_path: Path
) -> None:
    _call(store, tmp_path, "heartbeat", "--step", "1")
    nowhere = Store(store.client, "no-such-bucket-of-ours")
    done = _call(nowhere, tmp_path, "heartbeat", "--step", "2")
    assert (done.returncode, "was not copied to S3" in done.stderr) == (0, True)
    assert (tmp_path / "r/progress.json").read_text().count('"step": 2')
