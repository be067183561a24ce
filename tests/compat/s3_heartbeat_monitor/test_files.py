"""`core.py` and its classes, under the name that they have here, for scripts that call them in a loop of their own."""

from __future__ import annotations

import inspect

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import LOG, RUN, Bucket
from trainwarden.monitor import AlertManager, RunState, TrainingMonitor
from trainwarden.stack.slack_sink import SlackSink

pytestmark = pytest.mark.seed("Production Training Monitor", "Files")


def test_states_have_their_names() -> None:
    assert {"RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "WARNING"} <= {state.value for state in RunState}
    assert RunState("FAILED") is RunState.FAILED
    assert RunState.FAILED == "FAILED"


def test_parameters_of_the_alert_manager() -> None:
    made = list(inspect.signature(AlertManager).parameters)
    assert (made[0], {"sns_topic_arn", "region", "bucket"} <= set(made)) == ("slack_webhook", True)
    sent = inspect.signature(AlertManager.send)
    assert {"run_id", "new_state", "reason", "context"} <= set(sent.parameters)
    sent.bind(None, "run", "FAILED", "reason", {})


def test_the_engine_in_a_loop_of_ones_own(bucket: Bucket, slack: SlackSink, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.beat()
    bucket.put(RUN, LOG, "one\ntwo\n")
    engine = TrainingMonitor(bucket=bucket.name, region="us-east-1", stale_minutes=5)
    engine.configure_alerts(slack_webhook=slack.url)
    try:
        assert engine.check_and_alert(RUN) is RunState.RUNNING
        bucket.beat(metadata=400, progress=400)
        assert [engine.check_and_alert(RUN) for _ in range(2)] == [RunState.TIMED_OUT] * 2
        bucket.put(RUN, "_error", "NCCL timeout")
        assert [engine.check_and_alert(RUN) for _ in range(2)] == [RunState.FAILED] * 2
        state, reason, context = engine.evaluate_run(RUN)
        assert (state, reason) == (RunState.FAILED, "Error: NCCL timeout")
        assert (context["phase"], context["last_log_line"]) == ("training", "two")
        assert engine.evaluate_run("nothing")[:2] == (RunState.UNKNOWN, "nothing: there is no record yet")
    finally:
        engine.close()
    told = [message.payload["text"].split()[-1] for message in slack.messages]
    assert told == ["TIMED_OUT", "FAILED"], "one for each change"


def test_the_engine_takes_its_arguments_by_position(bucket: Bucket) -> None:
    bucket.beat(metadata=700, progress=700)
    with TrainingMonitor(bucket.name, "us-east-1", 10) as engine:
        assert engine.evaluate_run(RUN)[:2] == (RunState.TIMED_OUT, "Both heartbeats stale (>10m)")


def test_the_engine_knows_nothing_where_s3_gives_no_answer(
    bucket: Bucket, slack: SlackSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.beat(metadata=700, progress=700)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with TrainingMonitor(bucket.name, "us-east-1") as engine:
        engine.configure_alerts(slack_webhook=slack.url)
        assert engine.check_and_alert(RUN) is RunState.UNKNOWN
    assert slack.messages == []
