"""The monitor over records in a real server of S3."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.answering import AnsweringService, Asked
from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from tests.unit.runs.records import NOW
from trainwarden import cli
from trainwarden.monitor import RunState, TrainingMonitor, aws_lambda
from trainwarden.monitor.history import OBJECT
from trainwarden.record.clock import to_iso
from trainwarden.stack.slack_sink import SlackSink

PUBLISHED = b"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def look(store: Store, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    status = cli.main(["monitor", "--s3", store.url, "--once", "--json", *more])
    return status, json.loads(capsys.readouterr().out)


def beat(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    store.write("metadata.json", {"status": "running", "phase": "training", "last_update": to_iso(NOW)})
    store.write("progress.json", {"step": 3, "last_updated": to_iso(NOW)})
    store.write("logs/training_log_latest.txt", b"one\ntwo\n")


def test_runs_of_a_prefix_go_through_their_states(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store, monkeypatch)
    store.client.put_object(Bucket=store.bucket, Key=f"{store.prefix}/other/_complete", Body=b"")
    status, found = look(store, capsys)
    assert status == 0
    assert {run["run_id"]: run["status"] for run in found["runs"]} == {"other": "SUCCEEDED", "r": "RUNNING"}
    assert next(run for run in found["runs"] if run["run_id"] == "r")["last_log"] == "two"
    store.write("_error", b"NCCL timeout")
    status, found = look(store, capsys, "--run-id", "r")
    assert status == 1
    assert found["alerts"][0]["status"] == "FAILED"
    assert found["runs"][0]["reason"] == "Error: NCCL timeout"
    assert look(store, capsys)[1]["alerts"] == []


def test_what_cannot_be_read_is_unknown_and_no_timeout(
    store: Store, s3: FaultyServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store, monkeypatch)
    s3.fault = "broken"
    status, found = look(store, capsys)
    assert (status, found["runs"], found["alerts"]) == (3, [], [])
    s3.fault = "forbidden"
    status, found = look(store, capsys)
    assert (status, found["runs"]) == (2, [])
    assert "AccessDenied" in found["problems"][0]


def test_a_bucket_or_a_run_that_does_not_exist_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.write("metadata.json", {})
    with pytest.raises(SystemExit) as end:
        cli.main(["monitor", "--s3", store.url, "--once", "--run-id", "rr"])
    assert end.value.code == 2
    assert "near names: r" in capsys.readouterr().err
    assert cli.main(["runs", "--s3", "s3://no-such-bucket-here/x"]) == 2
    assert "NoSuchBucket" in capsys.readouterr().err


def test_runs_lists_the_bucket_of_the_environment(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store, monkeypatch)
    monkeypatch.setenv("MONITORING_BUCKET", store.bucket)
    assert cli.main(["runs", "--s3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:5] == ["r", "running", "train", "-", "3"]


def test_a_function_of_lambda_alerts_once_and_keeps_its_history_in_the_bucket(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[bytes] = []

    def publish(asked: Asked) -> tuple[int, object]:
        posted.append(asked.body)
        return 200, PUBLISHED

    sns = AnsweringService(publish)
    for name, value in (
        ("AWS_ENDPOINT_URL_SNS", sns.url), ("SNS_TOPIC_ARN", "arn:aws:sns:us-east-1:123456789012:pages"),
        ("MONITORING_BUCKET", store.bucket), ("STALE_MINUTES", "5"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    beat(store, monkeypatch)
    monkeypatch.setattr("time.time", lambda: NOW + 400)
    try:
        answers = [aws_lambda.handler({}, None) for _ in range(2)]
    finally:
        sns.close()
    assert [len(answer["alerts"]) for answer in answers] == [1, 0]
    assert len(posted) == 1
    assert b"Both+heartbeats+stale" in posted[0]
    kept = store.client.get_object(Bucket=store.bucket, Key=f"{store.prefix}/{OBJECT}")["Body"].read()
    assert "TIMED_OUT" in kept.decode()


def test_the_engine_of_the_earlier_monitor_is_called_as_before(
    store: Store, s3: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SlackSink()
    beat(store, monkeypatch)
    engine = TrainingMonitor(bucket=store.bucket, region="us-east-1", stale_minutes=5)
    engine.configure_alerts(slack_webhook=sink.url)
    try:
        assert engine.check_and_alert("r") is RunState.RUNNING
        store.write("_error", b"NCCL timeout")
        assert [engine.check_and_alert("r") for _ in range(2)] == [RunState.FAILED] * 2
        state, reason, context = engine.evaluate_run("r")
        assert (state, reason) == (RunState.FAILED, "Error: NCCL timeout")
        assert (context["phase"], context["last_log_line"]) == ("training", "two")
        assert engine.evaluate_run("nothing")[:2] == (RunState.UNKNOWN, "nothing: there is no record yet")
        s3.fault = "broken"
        assert engine.check_and_alert("r") is RunState.UNKNOWN
    finally:
        engine.close()
        sink.close()
    assert [message.payload["text"] for message in sink.messages] == ["🔥 R Training FAILED"], "one for each change"


def test_doctor_tries_what_a_run_needs_and_leaves_nothing(
    store: Store, s3: FaultyServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def finding() -> dict[str, Any]:
        cli.main(["doctor", "--s3", store.url, "--runs-dir", str(tmp_path), "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        return next(each for each in found if each["check"] == "s3")

    store.write("metadata.json", {})
    assert finding()["ok"] is True
    assert store.names() == {"metadata.json"}
    listed = store.client.list_objects_v2(Bucket=store.bucket)["Contents"]
    assert [each["Key"] for each in listed] == [f"{store.prefix}/r/metadata.json"]
    s3.fault = "forbidden"
    denied = finding()
    assert (denied["ok"], "s3:PutObject" in denied["fix"]) == (False, True)
    s3.fault = "reset"
    assert finding()["ok"] is None


def test_a_garbled_history_in_the_bucket_is_kept_under_another_name(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store, monkeypatch)
    monkeypatch.setenv("MONITORING_BUCKET", store.bucket)
    store.client.put_object(Bucket=store.bucket, Key=f"{store.prefix}/{OBJECT}", Body=b"{garbled")
    assert [run["status"] for run in aws_lambda.handler({}, None)["runs"]] == ["RUNNING"]
    assert f"{OBJECT}: is not JSON" in capsys.readouterr().out
    kept = store.client.get_object(Bucket=store.bucket, Key=f"{store.prefix}/{OBJECT}.unreadable")["Body"].read()
    assert kept == b"{garbled"
    assert len(aws_lambda.handler({}, None)["runs"]) == 1
    assert capsys.readouterr().out == ""
