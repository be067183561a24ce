"""The causes that the S3 heartbeat monitor lists for missing, wrong and empty alerts."""

from __future__ import annotations

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import LOG, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import Command
from trainwarden.stack.slack_sink import SlackSink

TITLE = "Production Training Monitor"
LOOK = ("monitor", "--run-id", RUN, "--once")


@pytest.mark.seed(TITLE, "No alerts received")
def test_alerts_are_for_transitions_of_the_state_alone(bucket: Bucket, trainwarden: Command, slack: SlackSink) -> None:
    for age in (0, 0, 700, 700, 0, 700):
        bucket.beat(metadata=age, progress=age)
        trainwarden(*LOOK, "--slack-webhook", slack.url)
    told = [message.payload["text"].split()[-1] for message in slack.messages]
    assert told == ["TIMED_OUT", "RUNNING", "TIMED_OUT"]


@pytest.mark.seed(TITLE, "No alerts received")
def test_an_address_that_is_none_is_named(bucket: Bucket, trainwarden: Command, slack: SlackSink) -> None:
    ran = trainwarden(*LOOK, "--slack-webhook", "hooks.slack.com/services/T0/B0/x")
    assert ran.status == 2
    assert "webhook" in ran.err
    ran = trainwarden("monitor", "--test-alert", "--slack-webhook", f"{slack.url}-of-another")
    assert (ran.status, ran.out) == (1, "slack: Slack answered 404\n")


@pytest.mark.seed(TITLE, "No alerts received")
def test_a_bucket_that_may_not_be_read_is_named_and_no_timeout(
    bucket: Bucket, trainwarden: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITORING_BUCKET", "no-such-bucket-here")
    ran = trainwarden("monitor", "--once", "--json")
    assert (ran.status, ran.document["runs"], ran.document["alerts"]) == (2, [], [])
    assert "NoSuchBucket" in ran.document["problems"][0]


@pytest.mark.seed(TITLE, "False timeouts")
@pytest.mark.parametrize(("minutes", "state"), [("10", "TIMED_OUT"), ("15", "RUNNING"), ("1h", "RUNNING")])
def test_stale_minutes_are_raised_for_a_long_setup(
    bucket: Bucket, trainwarden: Command, monkeypatch: pytest.MonkeyPatch, minutes: str, state: str
) -> None:
    monkeypatch.setenv("STALE_MINUTES", "2")
    bucket.beat(metadata=700, progress=None, phase="setup")
    ran = trainwarden(*LOOK, "--stale-minutes", minutes, "--json")
    assert ran.run["status"] == state


@pytest.mark.seed(TITLE, "Missing context in alerts")
def test_what_is_missing_leaves_its_line_out_and_nothing_else(
    bucket: Bucket, trainwarden: Command, slack: SlackSink
) -> None:
    bucket.put(RUN, "metadata.json", {"last_update": "2025-08-04T19:23:45Z"})
    trainwarden(*LOOK, "--slack-webhook", slack.url)
    bucket.put(RUN, LOG, "")
    bucket.put(RUN, "_error", "")
    trainwarden(*LOOK, "--slack-webhook", slack.url)
    for message, state in zip(slack.messages, ("TIMED_OUT", "FAILED"), strict=True):
        named = [line.split("*")[1] for line in message.text.splitlines()]
        assert named == ["Run ID:", "Status:", "Reason:", "🔧 Action Required:", "Record:"]
        assert f"*Status:* {state}" in message.text
        assert "None" not in message.text
