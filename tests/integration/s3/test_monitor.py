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
from trainwarden.monitor import aws_lambda
from trainwarden.monitor.history import OBJECT
from trainwarden.record.clock import to_iso

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
