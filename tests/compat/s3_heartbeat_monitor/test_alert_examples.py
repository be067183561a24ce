"""The two alerts that the page of the S3 heartbeat monitor shows, word for word."""

from __future__ import annotations

import html
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from tests.compat.s3_heartbeat_monitor.bucket import INSTANCE, LAST_LINE, LOG, METADATA, PROGRESS, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import Command
from trainwarden.stack.slack_sink import SlackSink

FAILED_RUN = "mistral-20250804-182347"
OOM_LINE = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
TIMED_OUT_ALERT = f"""\
🔥 Mistral Training TIMED_OUT
Run ID: {RUN}
Status: TIMED_OUT
Reason: Both heartbeats stale (>10m)
🔧 Action Required: SSH to instance and check: training.log, nvidia-smi, disk space
Instance: {INSTANCE}
Phase: training
Duration: 127 minutes
Last Log: {LAST_LINE}
📊 S3 Logs: View in S3 Console"""
FAILED_ALERT = f"""\
🔥 Mistral Training FAILED
Run ID: {FAILED_RUN}
Status: FAILED
Reason: Error: CUDA out of memory
🔧 Action Required: Reduce batch size or sequence length
Instance: {INSTANCE}
Phase: training
Duration: 45 minutes
Last Log: {OOM_LINE}
📊 S3 Logs: View in S3 Console"""


@pytest.fixture
def in_aws(place: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that is AWS's by its address, for the links to its console: moto answers within boto3."""
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    within = mock_aws()
    # What the server holds, in this process too, stays.
    within.start(reset=False)
    try:
        made = Bucket("llm-cache", boto3.client("s3"))
        made.client.create_bucket(Bucket=made.name)
        monkeypatch.setenv("MONITORING_BUCKET", made.name)
        yield made
    finally:
        within.stop(remove_data=False)


def told(slack: SlackSink) -> str:
    """The only message as a person sees it in Slack."""
    (message,) = slack.messages
    shown = message.plain().replace("*", "").replace("[View in S3 Console]", "View in S3 Console")
    return f"{html.unescape(message.payload['text'])}\n{shown}"


@pytest.mark.seed("Production Training Monitor", "TIMED_OUT Alert")
def test_timed_out_alert(in_aws: Bucket, trainwarden: Command, slack: SlackSink) -> None:
    in_aws.put(RUN, "metadata.json", {**METADATA, "start_time": "2025-08-04T17:16:21Z"})
    in_aws.put(RUN, "progress.json", PROGRESS)
    in_aws.put(RUN, LOG, f"starting\n{LAST_LINE}\n")
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", slack.url).status == 1
    assert told(slack) == TIMED_OUT_ALERT
    link = f"https://s3.console.aws.amazon.com/s3/buckets/llm-cache?prefix=training-runs%2F{RUN}%2Flogs%2F"
    assert f"<{link}|View in S3 Console>" in slack.messages[0].text


@pytest.mark.seed("Production Training Monitor", "FAILED Alert (CUDA OOM)")
def test_failed_alert_cuda_oom(in_aws: Bucket, trainwarden: Command, slack: SlackSink) -> None:
    times = {"last_update": "2025-08-04T19:08:47Z", "start_time": "2025-08-04T18:23:47Z"}
    in_aws.put(FAILED_RUN, "metadata.json", {**METADATA, "run_id": FAILED_RUN, **times})
    in_aws.put(FAILED_RUN, LOG, f"{OOM_LINE}\n")
    in_aws.put(FAILED_RUN, "_error", "CUDA out of memory")
    assert trainwarden("monitor", "--run-id", FAILED_RUN, "--once", "--slack-webhook", slack.url).status == 1
    assert told(slack) == FAILED_ALERT


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a run whose metadata.json states no start_time has no duration, though its id has the time of its start",
)
@pytest.mark.seed("Production Training Monitor", "TIMED_OUT Alert")
def test_duration_of_a_run_that_states_its_start_in_its_id_alone(
    in_aws: Bucket, trainwarden: Command, slack: SlackSink
) -> None:
    """The page's own two files, which lie 127 minutes after the time in the run's id, and its alert."""
    in_aws.put(RUN, "metadata.json", METADATA)
    in_aws.put(RUN, "progress.json", PROGRESS)
    in_aws.put(RUN, LOG, f"{LAST_LINE}\n")
    trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", slack.url)
    assert told(slack) == TIMED_OUT_ALERT


@pytest.mark.seed("Production Training Monitor", "FAILED Alert (CUDA OOM)")
def test_text_of_users_cannot_write_markup_of_slack(bucket: Bucket, trainwarden: Command, slack: SlackSink) -> None:
    bucket.beat()
    bucket.put(RUN, "_error", "CUDA out of memory <!channel> & ```")
    trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", slack.url)
    assert "*Reason:* Error: CUDA out of memory &lt;!channel&gt; &amp; '''" in slack.messages[0].text.splitlines()
