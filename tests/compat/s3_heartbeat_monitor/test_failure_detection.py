"""The table of conditions of the S3 heartbeat monitor: what is detected, and what the alert asks for."""

from __future__ import annotations

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import LOG, METADATA, PROGRESS, RUN, Bucket, ago
from tests.compat.s3_heartbeat_monitor.conftest import Command, Ran
from trainwarden.monitor import aws_lambda

pytestmark = pytest.mark.seed("Production Training Monitor", "Failure Detection")

ODD_IDS = ("exp lr=1e-4", "mistral+lora", "r-ünï-日本")


def look(trainwarden: Command, *more: str) -> Ran:
    return trainwarden("monitor", "--run-id", RUN, "--once", "--json", *more)


def test_both_heartbeats_stale_for_ten_minutes_is_timed_out_and_sends_to_the_instance(
    bucket: Bucket, trainwarden: Command
) -> None:
    bucket.beat(metadata=580, progress=580)
    assert look(trainwarden).run["status"] == "RUNNING"
    bucket.beat(metadata=605, progress=605)
    ran = look(trainwarden)
    assert (ran.status, ran.run["status"]) == (1, "TIMED_OUT")
    assert ran.run["reason"] == "Both heartbeats stale (>10m)"
    assert ran.run["action"] == "SSH to instance and check: training.log, nvidia-smi, disk space"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a training whose clock is behind is called timed out while it writes"
)
def test_heartbeats_that_are_written_are_not_stale_whatever_the_clock_of_the_training_says(
    bucket: Bucket, trainwarden: Command
) -> None:
    for name, document, key in (
        ("metadata.json", METADATA, "last_update"),
        ("progress.json", PROGRESS, "last_updated"),
    ):
        bucket.put(RUN, name, {**document, key: ago(7200)}, written=0)
    assert look(trainwarden).run["status"] == "RUNNING"


@pytest.mark.parametrize("age", [0, 10**6], ids=["beside fresh heartbeats", "beside old ones"])
def test_an_error_sentinel_is_failed_and_sends_to_its_details(bucket: Bucket, trainwarden: Command, age: float) -> None:
    bucket.beat(metadata=age, progress=age)
    bucket.put(RUN, "_error", "shard 7 is odd")
    ran = look(trainwarden)
    assert (ran.status, ran.run["status"], ran.run["reason"]) == (1, "FAILED", "Error: shard 7 is odd")
    assert ran.run["action"] == "Check the error's details in _error"


@pytest.mark.parametrize("age", [0, 10**6], ids=["beside fresh heartbeats", "beside old ones"])
def test_a_completion_marker_is_succeeded_training_complete(bucket: Bucket, trainwarden: Command, age: float) -> None:
    bucket.beat(metadata=age, progress=age)
    bucket.put(RUN, "_complete", "")
    ran = look(trainwarden)
    assert (ran.status, ran.run["status"], ran.run["reason"]) == (0, "SUCCEEDED", "Training complete")


def test_an_error_counts_beside_a_completion_marker(bucket: Bucket, trainwarden: Command) -> None:
    """As a training leaves them whose completion marker is written at every exit."""
    bucket.beat()
    bucket.put(RUN, "_error", "lost")
    bucket.put(RUN, "_complete", "")
    assert look(trainwarden).run["status"] == "FAILED"


@pytest.mark.parametrize(
    ("ages", "which"),
    [((0, 605), "Progress heartbeat"), ((605, 0), "Metadata heartbeat")],
    ids=["progress", "metadata"],
)
def test_one_heartbeat_stale_is_a_warning_of_a_degraded_state(
    bucket: Bucket, trainwarden: Command, ages: tuple[float, float], which: str
) -> None:
    bucket.beat(metadata=ages[0], progress=ages[1])
    ran = look(trainwarden)
    assert (ran.status, ran.run["status"]) == (1, "WARNING")
    assert ran.run["reason"].startswith(f"{which} stale (>10m)")
    assert [alert["status"] for alert in ran.document["alerts"]] == ["WARNING"]


def test_no_heartbeat_files_is_awaited_first_and_then_timed_out_as_never_started(
    bucket: Bucket, trainwarden: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a monitor that keeps looking."""
    now = [1_790_000_000.0]

    def sleep(_seconds: float) -> None:
        now[0] += 601
        if now[0] > 1_790_000_700:
            bucket.put(RUN, "_complete", "")

    monkeypatch.setattr("trainwarden.monitor.command.time.time", lambda: now[0])
    monkeypatch.setattr("trainwarden.monitor.command.time.sleep", sleep)
    ran = trainwarden("monitor", "--run-id", RUN)
    told = [line.split()[2] for line in ran.out.splitlines()]
    assert told == ["TIMED_OUT", "SUCCEEDED"]
    assert "No heartbeat files: never started (>10m)" in ran.out
    assert "waiting for it" in ran.err.splitlines()[0]


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="each look without a loop takes a run without heartbeats for new: its log may be hours old",
)
def test_never_started_is_noticed_by_single_looks_at_a_run_that_has_a_log_alone(
    bucket: Bucket, trainwarden: Command
) -> None:
    bucket.put(RUN, LOG, "pulling the image\n")
    assert look(trainwarden).run["status"] == "PENDING"
    bucket.age(RUN, 700)
    ran = look(trainwarden)
    assert (ran.status, ran.run["status"]) == (1, "TIMED_OUT")
    assert ran.run["reason"].startswith("No heartbeat files: never started")


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="single looks at a run that has written nothing never say that it timed out",
)
def test_never_started_is_noticed_by_single_looks_at_a_run_that_has_written_nothing(
    bucket: Bucket, trainwarden: Command
) -> None:
    """The time of its id is months ago."""
    bucket.beat("another")
    ran = look(trainwarden)
    assert ran.status == 1, ran.err
    assert ran.run["status"] == "TIMED_OUT"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a function that looks each minute lists a run as missing for ever"
)
def test_never_started_is_noticed_by_a_function_that_a_schedule_calls(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_ID", RUN)
    now = [1_790_000_000.0]
    monkeypatch.setattr("trainwarden.monitor.aws_lambda.time.time", lambda: now[0])
    states = []
    for now[0] in (1_790_000_000.0, 1_790_000_060.0, 1_790_000_700.0):
        states = [run["status"] for run in aws_lambda.handler({}, None)["runs"]]
    assert states == ["TIMED_OUT"]


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="runs whose id has other characters are left out without a word"
)
def test_every_run_of_the_prefix_is_watched_whatever_its_id(bucket: Bucket, trainwarden: Command) -> None:
    for run_id in ODD_IDS:
        bucket.beat(run_id, metadata=700, progress=700)
    document = trainwarden("monitor", "--once", "--json").document
    watched = {run["run_id"] for run in document["runs"]}
    problems = "\n".join(document["problems"])
    listed = trainwarden("runs", "--s3")
    unwatched = [run_id for run_id in ODD_IDS if run_id not in watched and run_id not in problems]
    unlisted = [run_id for run_id in ODD_IDS if run_id not in listed.out + listed.err]
    assert (unwatched, unlisted) == ([], [])


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="metadata.json that is no JSON counts as a sign of life, and nobody is told",
)
def test_metadata_that_cannot_be_read_is_said_with_its_key(bucket: Bucket, trainwarden: Command) -> None:
    bucket.put(RUN, "metadata.json", '{"run_id": "mis')
    ran = trainwarden("monitor", "--run-id", RUN, "--once")
    assert f"training-runs/{RUN}/metadata.json" in ran.out + ran.err
    assert "/tmp/" not in ran.out + ran.err
