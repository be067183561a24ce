"""The variables, the three ways to name the webhook, and SNS."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from tests.compat.s3_heartbeat_monitor.bucket import LOG, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, Command
from tests.integration.s3.faulty_server import faulty_server
from trainwarden.monitor import TrainingMonitor
from trainwarden.stack.slack_sink import SlackSink

TITLE = "Production Training Monitor"
variables = pytest.mark.seed(TITLE, "Environment Variables")
webhook = pytest.mark.seed(TITLE, "Slack Webhook Setup")
topic = pytest.mark.seed(TITLE, "SNS Integration (Alternative to Slack)")


def sent(slack: SlackSink) -> list[str]:
    return [message.payload["text"] for message in slack.messages]


@variables
def test_monitoring_bucket_and_region_name_the_place(
    bucket: Bucket, trainwarden: Command, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bucket(f"{bucket.name}-eu", boto3.client("s3", region_name="eu-west-1"))
    other.client.create_bucket(Bucket=other.name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    other.beat("there")
    bucket.beat("here")
    look = ("monitor", "--once", "--json")
    assert trainwarden(*look).run["run_id"] == "here"
    monkeypatch.setenv("MONITORING_BUCKET", other.name)
    monkeypatch.setenv("MONITORING_REGION", "eu-west-1")
    with faulty_server(moto_url) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        assert trainwarden(*look).run["run_id"] == "there"
    assert "/eu-west-1/s3/" in server.signed


@variables
@pytest.mark.parametrize(
    ("minutes", "state"),
    [(None, "RUNNING"), ("10", "RUNNING"), ("5", "TIMED_OUT"), ("15", "RUNNING"), ("90s", "TIMED_OUT")],
)
def test_stale_minutes_are_ten_unless_the_variable_says_otherwise(
    bucket: Bucket, trainwarden: Command, monkeypatch: pytest.MonkeyPatch, minutes: str | None, state: str
) -> None:
    bucket.beat(metadata=400, progress=400)
    if minutes is not None:
        monkeypatch.setenv("STALE_MINUTES", minutes)
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["status"] == state


@variables
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="without a place the message names a folder that users of S3 never had"
)
def test_without_a_bucket_the_message_names_the_variable_and_the_option(place: Path, trainwarden: Command) -> None:
    ran = trainwarden("monitor", "--run-id", RUN, "--once")
    assert ran.status == 2
    assert "MONITORING_BUCKET" in ran.err
    assert "--s3" in ran.err


@webhook
def test_option_1_the_environment_file(bucket: Bucket, place: Path, trainwarden: Command, slack: SlackSink) -> None:
    bucket.beat(metadata=700, progress=700)
    (place / ".env").write_text(f"# copied from .env.example\nSLACK_WEBHOOK_URL={slack.url}\n")
    assert trainwarden("monitor", "--run-id", RUN, "--once").status == 1
    assert sent(slack) == ["🔥 Mistral Training TIMED_OUT"]


@webhook
def test_the_environment_file_takes_the_other_variables_and_a_variable_comes_first(
    bucket: Bucket, place: Path, trainwarden: Command, slack: SlackSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.beat(metadata=400, progress=400)
    monkeypatch.delenv("MONITORING_BUCKET")
    (place / ".env").write_text(
        f"export SLACK_WEBHOOK_URL='{slack.url}'\nMONITORING_BUCKET=\"{bucket.name}\"\n"
        "STALE_MINUTES=5  # minutes\nPATH=/nowhere\n"
    )
    look = ("monitor", "--run-id", RUN, "--once", "--json")
    assert trainwarden(*look).run["reason"] == "Both heartbeats stale (>5m)"
    monkeypatch.setenv("STALE_MINUTES", "10")
    assert trainwarden(*look).run["status"] == "RUNNING"
    assert sent(slack) == ["🔥 Mistral Training TIMED_OUT", "▶️ Mistral Training RUNNING"]


@webhook
@pytest.mark.process
def test_option_2_the_environment_variable(bucket: Bucket, process: Command, slack: SlackSink) -> None:
    bucket.beat(metadata=700, progress=700)
    ran = process(str(PROGRAM), "monitor", RUN, "--once", SLACK_WEBHOOK_URL=slack.url)
    assert (ran.status, ran.err) == (1, "")
    assert sent(slack) == ["🔥 Mistral Training TIMED_OUT"]


@webhook
def test_option_3_passed_directly_as_an_address_or_as_a_file_that_holds_it(
    bucket: Bucket, place: Path, trainwarden: Command, slack: SlackSink
) -> None:
    bucket.beat(metadata=700, progress=700)
    ran = trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", slack.url)
    assert ran.status == 1
    assert slack.url not in ran.out + ran.err
    bucket.put(RUN, "_error", "lost")
    (place / "slack-url").write_text(f"{slack.url}\n")
    trainwarden("monitor", "--run-id", RUN, "--once", "--slack-webhook", str(place / "slack-url"))
    assert sent(slack) == ["🔥 Mistral Training TIMED_OUT", "🔥 Mistral Training FAILED"]


@webhook
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="one webhook that does not answer is reported in two lines"
)
@pytest.mark.process
def test_a_webhook_that_takes_nothing_is_reported_once(bucket: Bucket, process: Command) -> None:
    bucket.beat(metadata=700, progress=700)
    closed = "http://127.0.0.1:1/services/s3cret"
    ran = process(str(PROGRAM), "monitor", "--run-id", RUN, "--once", SLACK_WEBHOOK_URL=closed)
    assert ran.status == 1
    assert "s3cret" not in ran.out + ran.err
    assert [line for line in ran.err.splitlines() if "not sent by slack" in line][1:] == []


@webhook
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a limit of seconds is written as 0.0833333m in the reason of a run never seen",
)
def test_durations_in_an_alert_are_written_for_people(
    bucket: Bucket, slack: SlackSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_790_000_000.0]
    monkeypatch.setattr("trainwarden.monitor.training_monitor.time.time", lambda: now[0])
    with TrainingMonitor(bucket.name, stale_minutes=5 / 60) as engine:
        engine.configure_alerts(slack_webhook=slack.url)
        engine.check_and_alert(RUN)
        now[0] += 6
        engine.check_and_alert(RUN)
    (message,) = slack.messages
    assert "never started (>5 s)" in message.plain()


@pytest.fixture
def inbox(bucket: Bucket) -> tuple[str, str]:
    """A topic, and the queue that has subscribed to it."""
    sns, sqs = (boto3.client(name, region_name="us-east-1") for name in ("sns", "sqs"))
    arn = sns.create_topic(Name=f"training-alerts-{bucket.name}")["TopicArn"]
    url = sqs.create_queue(QueueName=bucket.name)["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue)
    return arn, url


def received(url: str) -> list[dict[str, str]]:
    answer = boto3.client("sqs", region_name="us-east-1").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [json.loads(message["Body"]) for message in answer.get("Messages", [])]


@topic
@pytest.mark.parametrize("how", ["option", "variable", "environment file"])
def test_sns_topic_gets_the_alert(
    bucket: Bucket,
    place: Path,
    trainwarden: Command,
    inbox: tuple[str, str],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arn, url = inbox
    bucket.beat(metadata=700, progress=700)
    bucket.put(RUN, LOG, "the end\n")
    if how == "variable":
        monkeypatch.setenv("SNS_TOPIC_ARN", arn)
    if how == "environment file":
        (place / ".env").write_text(f"SNS_TOPIC_ARN={arn}\n")
    more = ("--sns-topic", arn) if how == "option" else ()
    assert [trainwarden("monitor", "--run-id", RUN, "--once", *more).status for _ in range(2)] == [1, 1]
    (message,) = received(url)
    assert message["Message"].splitlines()[:4] == [
        "🔥 Mistral Training TIMED_OUT", f"Run ID: {RUN}", "Status: TIMED_OUT", "Reason: Both heartbeats stale (>10m)",
    ]  # fmt: skip
    assert "Last Log: the end" in message["Message"].splitlines()


@topic
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the subject of a mail begins with a question mark: its sign is no ASCII"
)
def test_sns_subject_is_the_title_in_letters_that_a_mail_can_have(
    bucket: Bucket, trainwarden: Command, inbox: tuple[str, str]
) -> None:
    arn, url = inbox
    bucket.beat(metadata=700, progress=700)
    trainwarden("monitor", "--run-id", RUN, "--once", "--sns-topic", arn)
    (message,) = received(url)
    assert message["Subject"] == "Mistral Training TIMED_OUT"
