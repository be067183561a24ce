"""Trying the alerts from Python, with the call that the page of the S3 heartbeat monitor shows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, Command
from trainwarden.monitor import AlertManager, RunState
from trainwarden.stack.slack_sink import SlackSink

pytestmark = pytest.mark.seed("Production Training Monitor", "Testing")


def test_a_test_alert_by_the_alert_manager(slack: SlackSink) -> None:
    alert = AlertManager(slack_webhook=slack.url)
    took = alert.send("test-run", "FAILED", "Test alert",
                      {"instance_id": "i-test", "phase": "testing"})  # fmt: skip
    assert took is True
    (message,) = slack.messages
    assert message.payload["text"] == "🔥 Test-run Training FAILED"
    assert message.text.splitlines() == [
        "*Run ID:* test-run", "*Status:* FAILED", "*Reason:* Test alert", "*Instance:* i-test", "*Phase:* testing",
    ]  # fmt: skip


def test_each_name_of_the_context_and_the_link_to_the_logs(slack: SlackSink) -> None:
    context = {"instance_id": "i-test", "phase": "training", "duration_minutes": 127.4, "last_log_line": "step 9"}
    alert = AlertManager(slack.url, None, "us-east-1", "my-bucket")
    assert alert.send(run_id="test-run", new_state=RunState.TIMED_OUT, reason="stale", context=context)
    link = "https://s3.console.aws.amazon.com/s3/buckets/my-bucket?region=us-east-1&amp;prefix=training-runs%2Ftest-run"
    assert slack.messages[0].text.splitlines()[1:] == [
        "*Status:* TIMED_OUT", "*Reason:* stale", "*Instance:* i-test", "*Phase:* training",
        "*Duration:* 127 minutes", "*Last Log:* step 9",
        f"*📊 S3 Logs:* <{link}%2Flogs%2F|View in S3 Console>",
    ]  # fmt: skip


def test_a_channel_that_takes_nothing_is_false_and_one_that_cannot_be_used_an_error() -> None:
    closed = AlertManager(slack_webhook="http://127.0.0.1:1/services/s3cret")
    assert closed.send("test-run", "FAILED", "Test alert", {}) is False
    with pytest.raises(ValueError, match="webhook"):
        AlertManager(slack_webhook="your-webhook-url")
    with pytest.raises(ValueError, match="SNS topic"):
        AlertManager(sns_topic_arn="no-arn", region="us-east-1", bucket="my-bucket")


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="an alert that no channel was there for counts as taken")
def test_without_a_channel_nobody_took_the_alert() -> None:
    assert AlertManager().send("test-run", "FAILED", "Test alert", {}) is False


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="an alert by a script has no action, where that of the command has one"
)
@pytest.mark.parametrize(("status", "reason", "written"), [
    ("FAILED", "Error: CUDA out of memory", {"_error": "CUDA out of memory"}),
    ("TIMED_OUT", "Both heartbeats stale (>10m)", {}),
])  # fmt: skip
def test_an_alert_by_a_script_has_the_action_of_the_command(
    bucket: Bucket, trainwarden: Command, slack: SlackSink, status: str, reason: str, written: dict[str, str]
) -> None:
    bucket.beat(metadata=700, progress=700)
    for name, content in written.items():
        bucket.put(RUN, name, content)
    action = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["action"]
    AlertManager(slack.url).send(RUN, status, reason, {})
    assert f"*🔧 Action Required:* {action}" in slack.messages[0].text.splitlines()


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a duration that is no number is shown as nan minutes")
@pytest.mark.parametrize("context", [{"duration_minutes": math.nan}, {"duration_seconds": math.nan}])
def test_a_duration_that_is_no_number_is_left_out(slack: SlackSink, context: dict[str, Any]) -> None:
    AlertManager(slack.url).send(RUN, "FAILED", "lost", context)
    assert "nan" not in slack.messages[0].text


@pytest.mark.process
def test_a_test_alert_by_the_command(process: Command, slack: SlackSink) -> None:
    ran = process(str(PROGRAM), "monitor", "--test-alert", SLACK_WEBHOOK_URL=slack.url)
    assert (ran.status, ran.out, ran.err) == (0, "slack: sent\n", "")
    assert "*Reason:* Test alert" in slack.messages[0].text.splitlines()
