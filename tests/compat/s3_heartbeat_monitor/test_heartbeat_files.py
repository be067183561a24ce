"""`metadata.json` and `progress.json`: read as users' trainings write them, and written so for users' own readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trainwarden as library
from tests.compat.s3_heartbeat_monitor.bucket import INSTANCE, METADATA, PROGRESS, RUN, Bucket, ago
from tests.compat.s3_heartbeat_monitor.conftest import Command

pytestmark = pytest.mark.seed("Production Training Monitor", "Heartbeat Files")


def test_metadata_json_gives_the_overall_status(bucket: Bucket, trainwarden: Command) -> None:
    bucket.put(RUN, "metadata.json", METADATA)
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert (run["run_id"], run["phase"], run["instance_id"]) == (RUN, "training", INSTANCE)
    assert run["heartbeats"]["metadata_age_seconds"] > 86_400
    assert run["heartbeats"]["progress_age_seconds"] is None


def test_progress_json_gives_the_training_metrics(bucket: Bucket, trainwarden: Command) -> None:
    bucket.put(RUN, "progress.json", PROGRESS)
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    given = {name: run[name] for name in ("step", "total_steps", "loss", "learning_rate")}
    assert given == {"step": 1500, "total_steps": 5000, "loss": 2.134, "learning_rate": 0.0001}
    assert run["heartbeats"]["progress_age_seconds"] > 86_400


@pytest.mark.parametrize("ending", ["Z", "", "+00:00", ".123456Z"])
def test_a_time_is_read_with_and_without_its_zone(bucket: Bucket, trainwarden: Command, ending: str) -> None:
    bucket.put(RUN, "metadata.json", {**METADATA, "last_update": ago(300).rstrip("Z") + ending})
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert run["status"] == "RUNNING"
    assert 295 < run["heartbeats"]["metadata_age_seconds"] < 330


@pytest.mark.parametrize("phase", ["setup", "training", "upload to the hub"])
def test_phase_is_shown_in_the_words_of_its_writer(bucket: Bucket, trainwarden: Command, phase: str) -> None:
    bucket.beat(phase=phase)
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert (run["status"], run["phase"]) == ("RUNNING", phase)


def test_the_library_writes_both_files_with_the_keys_that_readers_know(bucket: Bucket, place: Path) -> None:
    with library.run(RUN, dir=place / "runs", s3=f"s3://{bucket.name}/training-runs", total_steps=3) as run:
        for step in range(1, 4):
            run.step(step, loss=2.134, learning_rate=0.0001)
    metadata, progress = (json.loads(bucket.read(RUN, name)) for name in ("metadata.json", "progress.json"))
    assert metadata.keys() >= METADATA.keys()
    assert (metadata["run_id"], metadata["status"]) == (RUN, "succeeded")
    assert metadata["instance_id"]
    assert {name: progress[name] for name in PROGRESS if name != "last_updated"} == {
        "step": 3, "total_steps": 3, "loss": 2.134, "learning_rate": 0.0001,
    }  # fmt: skip
    for time in (metadata["last_update"], progress["last_updated"]):
        assert time[:10] == ago()[:10]
        assert time.endswith("Z")
