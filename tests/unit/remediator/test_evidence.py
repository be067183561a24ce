"""What Prometheus and Alertmanager say, read without trust: three values, never a guess."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.clients.scripted import Scripted
from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.clients.prometheus import PrometheusClient, PrometheusSample
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.observe.alertmanagers import AlertmanagerAlerts
from trainwarden_remediator.observe.evidence import OBSERVED, PrometheusRuns, ReportedRun, read_run


def sample(name: str, value: float, instance: str = "a:9745", **labels: str) -> PrometheusSample:
    metric = {"__name__": name, "run_id": "r", "instance": instance, "job": "trainwarden", **labels}
    return PrometheusSample(metric, value)


def record(attempt: int, key: str, started: float, instance: str = "a:9745") -> list[PrometheusSample]:
    return [
        sample("training_run_info", 1, instance, attempt_key=key),
        sample("training_run_attempt", attempt, instance),
        sample("training_attempt_start_timestamp_seconds", started, instance),
        sample("training_run_state", 1, instance, state="running"),
        sample("training_run_state", 0, instance, state="failed"),
        sample("training_step", 7, instance),
        sample("training_step_high_water", 9, instance),
    ]


def test_a_run_is_read_with_the_failure_of_its_present_attempt() -> None:
    failure = {"error_type": "nccl", "failure": "nccl_system", "subsystem": "distributed"}
    old = {**failure, "error_type": "oom"}
    result = [
        *record(2, "slurm:17:1", 100),
        sample("training_failure_info", 1, "b:1", attempt="1", **old),
        sample("training_failure_info", 1, attempt="2", **failure),
    ]
    of_this = ("nccl", "distributed", "nccl_system")
    assert read_run("r", result) == ReportedRun("r", 2, "slurm:17:1", "running", 7, 9, 100, *of_this)


def test_a_failure_of_an_older_attempt_is_not_this_one() -> None:
    run = read_run(
        "r", [*record(2, "slurm:17:1", 100), sample("training_failure_info", 1, attempt="1", error_type="oom")]
    )
    assert run is not None
    assert run.error_type is None


def test_of_two_machines_that_both_keep_a_record_the_newer_start_counts_whatever_its_number() -> None:
    result = [*record(3, "slurm:17:0", 100, "a:1"), *record(0, "slurm:17:1", 200, "b:1")]
    for order in (result, result[::-1]):
        run = read_run("r", order)
        assert run is not None
        assert run.attempt_key == "slurm:17:1"


def test_what_an_alert_is_checked_against_is_read_of_the_record() -> None:
    series = [
        sample("training_motion_timestamp_seconds", 900, phase="train", basis="step"),
        sample("training_motion_timestamp_seconds", 400, phase="eval", basis="phase"),
        sample("training_stale_threshold_seconds", 300),
        PrometheusSample({"__name__": OBSERVED, "run_id": "r"}, 1000),
    ]
    for order in (series, series[::-1]):
        run = read_run("r", [*record(0, "slurm:17:0", 100), *order])
        assert run is not None
        assert (run.moved, run.stale_threshold, run.vitals) == (900, 300, {OBSERVED: 1000})


def test_of_two_records_of_one_attempt_each_sign_of_work_counts() -> None:
    """Two machines write the record of one attempt; the one that looks newer does not see that the other trains."""
    stuck, works = record(0, "slurm:17:0", 100, "a:1"), record(0, "slurm:17:0", 100, "b:1")
    stuck += [sample("training_life_timestamp_seconds", 900, "a:1")]
    works += [sample("training_step_timestamp_seconds", 800, "b:1"), sample("training_step", 50, "b:1")]
    works[-3] = sample("training_step_high_water", 50, "b:1")
    for order in ([*stuck, *works], [*works, *stuck]):
        run = read_run("r", order)
        assert run is not None
        assert (run.alive, run.stepped, run.step, run.high_water, run.others) == (900, 800, 50, 50, ())


def test_what_is_missing_or_not_a_number_stays_unknown() -> None:
    result = [each for each in record(0, "local:1:0", 1) if "step" not in each.labels["__name__"]]
    run = read_run("r", [*result, sample("training_step", float("nan"))])
    assert run is not None
    assert (run.step, run.high_water) == (None, None)


def test_a_run_without_identity_is_no_run() -> None:
    assert read_run("r", []) is None
    assert read_run("r", record(0, "local:1:0", 1)[1:]) is None


def test_the_policy_that_the_record_asks_for_is_the_newest_records() -> None:
    older, newer = record(0, "slurm:17:0", 100, "a:1"), record(1, "slurm:17:1", 200, "b:1")
    older[0].labels["policy"] = "observe"
    for asked, read in ((None, None), ("", None), ("default", "default")):
        if asked is not None:
            newer[0].labels["policy"] = asked
        run = read_run("r", [*older, *newer])
        assert run is not None
        assert run.policy == read


def prometheus(url: str) -> PrometheusRuns:
    return PrometheusRuns(PrometheusClient(url))


def alertmanager(url: str) -> AlertmanagerAlerts:
    return AlertmanagerAlerts({url: AlertmanagerClient(url)})


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


def vector(result: str) -> bytes:
    return f'{{"status": "success", "data": {{"resultType": "vector", "result": {result}}}}}'.encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (302, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, vector("[{}]")),
        (200, vector('[{"metric": {"run_id": "r"}, "value": [1, "1"]}]')),
    ],
)
def test_an_answer_of_prometheus_that_cannot_be_used_is_unknown(scripted: Scripted, status: int, body: bytes) -> None:
    scripted.status, scripted.body = status, body
    assert isinstance(prometheus(scripted.url).runs(["r"])["r"], Unknown)


def test_an_empty_answer_of_prometheus_is_no_run_which_is_not_unknown(scripted: Scripted) -> None:
    scripted.body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
    assert prometheus(scripted.url).runs(["r"])["r"] is None


def two_clusters() -> bytes:
    def series(name: str, cluster: str, value: str, **labels: str) -> dict[str, Any]:
        metric = {"__name__": name, "run_id": "r", "instance": "a:9745", "cluster": cluster, **labels}
        return {"metric": {each: text for each, text in metric.items() if text}, "value": [1, value]}

    result = [
        series("training_run_info", "one", "1", attempt_key="slurm:17:0"),
        series("training_run_attempt", "one", "0"),
        series("training_run_info", "two", "1", attempt_key="slurm:99:4", instance="b:9745"),
        series("training_run_attempt", "two", "4", instance="b:9745"),
    ]
    return vector(json.dumps(result))


def test_the_same_run_id_in_another_cluster_is_another_run(scripted: Scripted) -> None:
    scripted.body = two_clusters()
    for cluster, key in (("one", "slurm:17:0"), ("two", "slurm:99:4")):
        run = PrometheusRuns(PrometheusClient(scripted.url), cluster).runs(["r"])["r"]
        assert isinstance(run, ReportedRun)
        assert run.attempt_key == key
    assert PrometheusRuns(PrometheusClient(scripted.url), "three").runs(["r"])["r"] is None


def test_a_run_id_of_two_clusters_is_unknown_where_none_is_named(scripted: Scripted) -> None:
    scripted.body = two_clusters()
    unknown = prometheus(scripted.url).runs(["r"])["r"]
    assert isinstance(unknown, Unknown)
    assert "one and two" in unknown.reason


def test_alerts_of_another_cluster_are_not_taken_from_alertmanager(scripted: Scripted) -> None:
    alerts = [
        {
            "labels": {"alertname": "a", "remediate": "true", "cluster": cluster},
            "startsAt": "2027-01-01T00:00:00Z",
            "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        }
        for cluster in ("one", "two", "")
    ]
    scripted.body = json.dumps(alerts).encode()
    for cluster, expected in (("one", ["one"]), ("", ["one", "two", ""])):
        firing = AlertmanagerAlerts({scripted.url: AlertmanagerClient(scripted.url)}, cluster).firing()
        assert isinstance(firing, list)
        assert [alert.labels["cluster"] for alert in firing] == expected


def test_services_that_do_not_listen_are_unknown() -> None:
    assert isinstance(prometheus("http://127.0.0.1:1").runs(["r"])["r"], Unknown)
    assert isinstance(alertmanager("http://127.0.0.1:1").firing(), Unknown)


@pytest.mark.parametrize(("status", "body"), [(500, b"[]"), (200, b"{}"), (200, b"x"), (200, b"[{}]"), (200, b"[1]")])
def test_an_answer_of_alertmanager_that_cannot_be_used_is_unknown(scripted: Scripted, status: int, body: bytes) -> None:
    scripted.status, scripted.body = status, body
    assert isinstance(alertmanager(scripted.url).firing(), Unknown)


def test_only_alerts_that_are_active_and_ask_for_action_are_taken_from_alertmanager(scripted: Scripted) -> None:
    def entry(number: int, state: str = "active", remediate: str = "true", **status: list[str]) -> dict[str, Any]:
        return {
            "labels": {"alertname": str(number), "remediate": remediate},
            "startsAt": "2027-01-01T00:00:00Z",
            "status": {"state": state, "silencedBy": [], "inhibitedBy": [], **status},
        }

    answer = [
        entry(1),
        entry(2, "suppressed"),
        entry(3, silencedBy=["x"]),
        entry(4, inhibitedBy=["x"]),
        entry(5, remediate="false"),
        entry(6, "unprocessed"),
    ]
    scripted.body = json.dumps(answer).encode()
    firing = alertmanager(scripted.url).firing()
    assert not isinstance(firing, Unknown)
    assert [alert.label("alertname") for alert in firing] == ["1", "6"]
    assert "silenced=false" in scripted.asked
    assert "inhibited=false" in scripted.asked


@pytest.mark.parametrize("label", ["replica", "prometheus_replica", "receive"])
def test_series_of_replicas_are_one_fact(label: str) -> None:
    """Thanos without deduplication, or a federation of two Prometheus."""
    failure = {"error_type": "oom", "failure": "cuda_oom", "subsystem": "cuda"}
    once = [*record(2, "slurm:17:1", 100), sample("training_failure_info", 1, attempt="2", **failure)]
    alone = read_run("r", once)
    twice = [PrometheusSample({**each.labels, label: name}, each.value) for name in "ab" for each in once]
    assert alone is not None
    assert alone.state == "running"
    assert read_run("r", twice) == alone
    assert read_run("r", once + once) == alone


def test_of_replicas_that_differ_by_a_scrape_the_later_one_counts() -> None:
    early, late = record(2, "slurm:17:1", 100), record(2, "slurm:17:1", 100)
    late[3], late[4] = (
        sample("training_run_state", 1, state="failed"),
        sample("training_run_state", 0, state="running"),
    )
    late.append(sample("training_failure_timestamp_seconds", 900))
    early.append(sample("training_life_timestamp_seconds", 890))
    for first, second in ((early, late), (late, early)):
        replicas = [
            PrometheusSample({**each.labels, "replica": name}, each.value)
            for name, series in (("a", first), ("b", second))
            for each in series
        ]
        run = read_run("r", replicas)
        assert run is not None
        assert run.state == "failed"
