"""When what happened, out of answers of Prometheus, the remediator's incident and the record."""

from typing import Any

import pytest

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError, PrometheusSample, PrometheusSeries
from trainwarden.report.timeline import Timeline, timeline

_INCIDENT = {
    "run_id": "r1",
    "attempt": 0,
    "alert": "TrainRunStalled",
    "failure_mode": "stall",
    "action": "restart",
    "created": 120.0,
    "step_before": 50,
    "events": [
        {"time": 118.0, "state": "RECEIVED", "detail": ""},
        {"time": 121.0, "state": "PROPOSED", "detail": ""},
        {"time": 122.0, "state": "PREPARING", "detail": ""},
    ],
}
_RECORD: dict[str, Any] = {
    "attempts": [
        {"attempt": 0, "start_time": "1970-01-01T00:00:00Z"},
        {"attempt": 1, "start_time": "1970-01-01T00:02:10Z", "resume_step": 41},
    ]
}


class FakePrometheus(PrometheusClient):
    """Answers from what a test gives it."""

    def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
        assert time == 115.0, "the last step is looked up at the time the alert's condition first held"
        return [PrometheusSample({}, 100.0)] if "training_step_timestamp_seconds" in expression else []

    def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[PrometheusSeries]:
        if expression.startswith("ALERTS"):
            assert 'alertname="TrainRunStalled"' in expression
            assert 'attempt="0"' in expression
            return [PrometheusSeries({}, [(118.0, 1), (119.0, 1)]), PrometheusSeries({}, [(115.0, 1), (117.0, 1)])]
        assert start == 130.0, "steps of the old attempt do not count"
        return [PrometheusSeries({}, [(131.0, 44), (133.0, 50), (134.0, 51), (135.0, 52)])]


class Unreachable(PrometheusClient):
    """Never answers."""

    def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
        raise PrometheusError(expression)

    def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[PrometheusSeries]:
        raise PrometheusError(expression)


def test_every_moment_of_a_recovery_is_found() -> None:
    assert timeline(_INCIDENT, _RECORD, FakePrometheus("http://x")) == Timeline(
        alert="TrainRunStalled",
        attempt=0,
        fault=100.0,
        detected=115.0,
        alerted=118.0,
        decided=121.0,
        restarted=130.0,
        recovered=134.0,
        steps_lost=10,
        resumed=True,
    )


@pytest.mark.parametrize(("resume_step", "origin"), [(41, "the checkpoint"), (1, "the beginning")])
def test_a_checkpoint_is_named_only_where_the_attempt_began_at_one(resume_step: int, origin: str) -> None:
    first, second = _RECORD["attempts"]
    record = {"attempts": [first, {**second, "resume_step": resume_step}]}
    lines = timeline(_INCIDENT, record, FakePrometheus("http://x")).lines()
    assert lines[-1].endswith(f"steps, trained again from {origin}")


def test_an_incident_without_a_restart_has_no_recovery() -> None:
    found = timeline({**_INCIDENT, "action": "none"}, _RECORD, FakePrometheus("http://x"))
    assert (found.restarted, found.recovered, found.steps_lost) == (None, None, None)


def test_what_prometheus_does_not_answer_is_left_out_of_the_table() -> None:
    text = "\n".join(timeline(_INCIDENT, _RECORD, Unreachable("http://x")).lines())
    assert "decided" in text
    assert "restarted" in text
    assert "fault" not in text
    assert "recovered" not in text
