"""The commands that a user of the S3 heartbeat monitor types, under the new name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, Command
from tests.waiting import wait_until
from trainwarden.stack.slack_sink import SlackSink

pytestmark = pytest.mark.seed("Production Training Monitor", "Quick Start")


@pytest.fixture
def pauses(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds between two looks; the run has ended at the third look."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            bucket.put(RUN, "_complete", "")

    bucket.beat()
    monkeypatch.setattr("trainwarden.monitor.command.time.sleep", sleep)
    return slept


def test_an_existing_run_is_monitored_each_minute_until_it_ends_without_alerts(
    pauses: list[float], trainwarden: Command
) -> None:
    ran = trainwarden("monitor", "--run-id", RUN)
    assert ran.status == 0
    assert [line.split()[2] for line in ran.out.splitlines()] == ["RUNNING", "RUNNING", "SUCCEEDED"]
    assert pauses == [60, 60]


def test_the_launcher_with_slack_alerts_takes_the_run_as_its_argument_and_an_interval(
    pauses: list[float], trainwarden: Command, slack: SlackSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`production_monitor.sh RUN --interval 30` is `trainwarden monitor RUN --interval 30`."""
    monkeypatch.setenv("SLACK_WEBHOOK_URL", slack.url)
    assert trainwarden("monitor", RUN, "--interval", "30").status == 0
    assert pauses == [30, 30]
    assert [message.payload["text"] for message in slack.messages] == ["✅ Mistral Training SUCCEEDED"]


@pytest.mark.parametrize(
    ("age", "state", "status"), [(0, "RUNNING", 0), (700, "TIMED_OUT", 1)], ids=["running", "silent"]
)
def test_a_single_status_check(bucket: Bucket, trainwarden: Command, age: float, state: str, status: int) -> None:
    bucket.beat(metadata=age, progress=age)
    ran = trainwarden("monitor", "--run-id", RUN, "--once")
    assert ran.status == status
    (line,) = ran.out.splitlines()
    assert line.split()[1:6] == [RUN, state, "training", "step", "1500/5000"]


@pytest.mark.process
def test_the_commands_as_processes(bucket: Bucket, process: Command, place: Path) -> None:
    bucket.beat()
    once = process(str(PROGRAM), "monitor", "--run-id", RUN, "--once")
    assert (once.status, once.err) == (0, "")
    assert f"{RUN}  RUNNING" in once.out
    argv = [str(PROGRAM), "monitor", "--run-id", RUN, "--interval", "0.1"]
    with (place / "printed").open("w") as printed:
        watching = subprocess.Popen(argv, stdout=printed, stderr=subprocess.STDOUT, env=os.environ, cwd=place)
    try:
        wait_until(lambda: "RUNNING" in (place / "printed").read_text(), "a first look")
        bucket.put(RUN, "_error", "CUDA out of memory")
        assert watching.wait(timeout=60) == 1
    finally:
        watching.kill()
        watching.wait()
    assert "🔥 Mistral Training FAILED" in (place / "printed").read_text(), "without a channel the terminal is one"
