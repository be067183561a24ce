"""What `trainwarden up` prints of a run: in the order in which it took place, and no standstill as if it were news."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwarden.clients.http import HttpClient, HttpResponse
from trainwarden.clients.prometheus import PrometheusAlert, PrometheusClient, PrometheusSample
from trainwarden.record.folder import METADATA, PROGRESS, write_json
from trainwarden.stack.terminal import Terminal
from trainwarden.stack.watch import Watcher


class Quiet(PrometheusClient):
    """No alert fires."""

    def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
        return []

    def alerts(self) -> list[PrometheusAlert]:
        return []


class Decided(HttpClient):
    """A remediator with these incidents."""

    incidents: tuple[dict[str, Any], ...] = ()

    def get(self, path: str, params: Mapping[str, Any] | None = None, *_rest: Any, **_options: Any) -> HttpResponse:
        return HttpResponse(200, json.dumps(self.incidents).encode())


INCIDENT = {
    "id": "1",
    "attempt_key": "local:7:0",
    "attempt": 0,
    "alert": "TrainRunStalled",
    "action": "restart",
    "reason": "policy",
    "created": 10.0,
    "events": [
        {"time": 10.0, "state": "RECEIVED", "detail": ""},
        {"time": 11.0, "state": "PROPOSED", "detail": "restart: policy"},
        {"time": 12.0, "state": "COMMITTED", "detail": ""},
        {"time": 14.0, "state": "VERIFYING", "detail": "the new start is running"},
    ],
}


def test_what_a_decision_led_to_comes_between_the_decision_and_its_result(tmp_path: Path) -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    done = [(9.0, "failed"), (13.0, "is being ended"), (20.0, "later")]

    def catch_up(until: float) -> None:
        while done and done[0][0] <= until:
            terminal.event("restart", done.pop(0)[1])

    remediator = Decided("http://x", 1)
    remediator.incidents = (INCIDENT,)
    Watcher(tmp_path, "local:7:", Quiet("http://x"), remediator, terminal, catch_up).poll()
    kinds = [line.split("] ")[1].split()[:2] for line in stream.getvalue().splitlines()]
    assert kinds == [
        ["restart", "failed"],
        ["remediate", "RECEIVED"],
        ["remediate", "PROPOSED:"],
        ["decision", "restart"],
        ["remediate", "COMMITTED"],
        ["restart", "is"],
        ["remediate", "VERIFYING:"],
    ]


def test_a_loop_that_stands_still_is_shown_as_that_until_the_run_ends(tmp_path: Path) -> None:
    stream, now, is_over = io.StringIO(), [100.0], [False]
    watcher = Watcher(
        tmp_path, "7", Quiet("http://x"), Decided("http://x", 1), Terminal(stream), lambda _time: None,
        is_over=lambda: is_over[0], clock=lambda: now[0],
    )  # fmt: skip

    def shown(step: int, status: str, seconds: float) -> str:
        now[0] += seconds
        write_json(tmp_path / METADATA, {"run_id": "r", "status": status})
        write_json(tmp_path / PROGRESS, {"step": step, "total_steps": 9, "attempt": 0})
        before = len(stream.getvalue())
        watcher.poll()
        return stream.getvalue()[before:].partition("run")[2].strip()

    assert shown(3, "running", 0) == "step 3/9 (attempt 0)"
    assert shown(4, "running", 6) == "step 4/9 (attempt 0)"
    assert shown(4, "running", 4) == ""
    assert shown(4, "running", 4) == "step 4/9 (attempt 0), no new one for 8 s"
    assert shown(5, "running", 6) == "step 5/9 (attempt 0)"
    assert shown(5, "failed", 6) == ""
    assert shown(6, "failed", 6) == "", "also where the loop moved after the last line"
    is_over[0] = True
    assert shown(7, "running", 6) == "", "a process that was killed left no end in its record"
    is_over[0] = False
    assert shown(7, "running", 6).startswith("step 7/9")


def test_an_alert_without_attempt_names_none_and_an_information_counts_once_it_fires(tmp_path: Path) -> None:
    class Alerting(Quiet):
        state = "pending"

        def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
            info = {"alertname": "TrainRunNotRecoverable", "severity": "info", "alertstate": self.state}
            stalled = {"alertname": "TrainRunStalled", "severity": "critical", "alertstate": "pending", "attempt": "0"}
            return [PrometheusSample(labels, 1.0) for labels in (info, stalled)]

    stream, prometheus = io.StringIO(), Alerting("http://x")
    watcher = Watcher(tmp_path, "local:7:", prometheus, Decided("http://x", 1), Terminal(stream), lambda _time: None)
    watcher.poll()
    prometheus.state = "firing"
    watcher.poll()
    shown = [line.partition("alert")[2].strip() for line in stream.getvalue().splitlines()]
    assert shown == ["TrainRunStalled is pending (attempt 0)", "TrainRunNotRecoverable is firing"]


def test_what_fires_in_the_first_rounds_of_prometheus_is_shown_before_it_is_recorded(tmp_path: Path) -> None:
    """A page of the remediator reaches people after its first round, and ALERTS half a minute later."""
    exhausted = {"alertname": "TrainRunRestartExhausted", "severity": "critical", "attempt": "2"}

    class Started(Quiet):
        is_recorded = False

        def query(self, expression: str, time: float | None = None) -> list[PrometheusSample]:
            return [PrometheusSample({**exhausted, "alertstate": "firing"}, 1.0)] if self.is_recorded else []

        def alerts(self) -> list[PrometheusAlert]:
            runs = {"another": "7", tmp_path.name: "2"}
            return [PrometheusAlert({**exhausted, "run_id": run, "attempt": n}, "firing") for run, n in runs.items()]

    stream, prometheus = io.StringIO(), Started("http://x")
    watcher = Watcher(tmp_path, "local:7:", prometheus, Decided("http://x", 1), Terminal(stream), lambda _time: None)
    watcher.poll()
    assert watcher.fired == {"TrainRunRestartExhausted"}
    prometheus.is_recorded = True
    watcher.poll()
    assert [line.partition("alert")[2].strip() for line in stream.getvalue().splitlines()] == [
        "TrainRunRestartExhausted is firing (attempt 2)"
    ]
