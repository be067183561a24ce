"""What the S3 heartbeat monitor was there for: failures that nothing else notices, each alerted about once."""

from __future__ import annotations

import json

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import INSTANCE, LAST_LINE, LOG, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import Command
from trainwarden.stack.slack_sink import SlackSink

pytestmark = pytest.mark.seed("Production Training Monitor", "Key Features")


def titles(slack: SlackSink) -> list[str]:
    return [message.payload["text"] for message in slack.messages]


def test_silent_failure_detection_by_two_heartbeats(bucket: Bucket, trainwarden: Command) -> None:
    """A process that lives and whose loop hangs, and one that is gone: no error is written by either."""
    bucket.beat("hangs", metadata=0, progress=700)
    bucket.beat("gone", metadata=700, progress=700)
    bucket.beat("well", metadata=0, progress=0)
    ran = trainwarden("monitor", "--once", "--json")
    assert ran.status == 1
    states = {run["run_id"]: run["status"] for run in ran.document["runs"]}
    assert states == {"hangs": "WARNING", "gone": "TIMED_OUT", "well": "RUNNING"}


@pytest.mark.parametrize(("end", "state"), [("_complete", "SUCCEEDED"), ("_error", "FAILED"), ("silence", "TIMED_OUT")])
def test_state_machine_from_running_to_each_end_with_one_alert(
    bucket: Bucket, trainwarden: Command, slack: SlackSink, end: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK_URL", slack.url)
    look = ("monitor", "--run-id", RUN, "--once", "--json")
    bucket.beat()
    assert [trainwarden(*look).run["status"] for _ in range(2)] == ["RUNNING"] * 2
    assert titles(slack) == []
    if end == "silence":
        bucket.beat(metadata=700, progress=700)
    else:
        bucket.put(RUN, end, "lost")
    assert [trainwarden(*look).run["status"] for _ in range(3)] == [state] * 3
    assert [title.split(" ", 1)[1] for title in titles(slack)] == [f"Mistral Training {state}"]


def test_error_sentinels_are_captured_with_their_text(bucket: Bucket, trainwarden: Command) -> None:
    bucket.beat()
    bucket.put(RUN, "_error", "loss is NaN at step 1500")
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert (run["status"], run["reason"]) == ("FAILED", "Error: loss is NaN at step 1500")


def test_actionable_alerts_with_rich_context_instance_phase_duration_and_last_log(
    bucket: Bucket, trainwarden: Command, slack: SlackSink
) -> None:
    bucket.beat(metadata=700, progress=700, start_time="2025-08-04T17:16:21Z")
    bucket.put(RUN, LOG, f"first\n{LAST_LINE}\n")
    trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", slack.url)
    (message,) = slack.messages
    named = [line.split("*")[1] for line in message.text.splitlines()]
    assert named[:4] == ["Run ID:", "Status:", "Reason:", "🔧 Action Required:"]
    assert named[4:] == ["Instance:", "Phase:", "Duration:", "Last Log:", "Record:"]
    assert INSTANCE in message.text
    assert LAST_LINE in message.text


def test_json_of_a_look_has_the_same_context(bucket: Bucket, trainwarden: Command) -> None:
    bucket.beat(metadata=700, progress=700)
    ran = trainwarden("monitor", "--run-id", RUN, "--once", "--json")
    (alert,) = json.loads(ran.out)["alerts"]
    assert (alert["run_id"], alert["status"]) == (RUN, "TIMED_OUT")
    assert f"Instance: {INSTANCE}\nPhase: training\n" in alert["text"]
