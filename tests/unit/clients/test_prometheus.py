"""What Prometheus answers, or why there is no usable answer."""

from __future__ import annotations

import json
import math

import pytest

from tests.cases import cases
from tests.unit.clients.scripted import Scripted
from trainwarden.clients.prometheus import PrometheusAlert, PrometheusClient, PrometheusError, PrometheusRule


def answer(result: object, kind: str = "vector", **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def test_an_instant_query_gives_every_sample_whatever_its_number(scripted: Scripted) -> None:
    texts = ("1.5", "NaN", "+Inf")
    scripted.body = answer([{"metric": {"__name__": "up", "job": "a"}, "value": [7.0, text]} for text in texts])
    found = PrometheusClient(scripted.url).query('up{job="a"}', 12.5)
    assert [each.value for each in found][::2] == [1.5, math.inf]
    assert math.isnan(found[1].value)
    assert found[0].labels == {"__name__": "up", "job": "a"}
    assert scripted.asked == "/api/v1/query?query=up%7Bjob%3D%22a%22%7D&time=12.5"


def test_a_range_query_gives_the_points_of_every_series(scripted: Scripted) -> None:
    scripted.body = answer([{"metric": {}, "values": [[1, "2"], [3.5, "4"]]}], "matrix")
    (series,) = PrometheusClient(scripted.url).query_range("up", 1, 4, 0.5)
    assert series.points == [(1, 2), (3.5, 4)]
    assert scripted.asked == "/api/v1/query_range?query=up&start=1&end=4&step=0.5"


def test_rules_carry_their_health(scripted: Scripted) -> None:
    rules = [{"name": "a", "health": "ok"}, {"name": "b", "health": "err", "lastError": "many-to-many"}]
    scripted.body = json.dumps({"status": "success", "data": {"groups": [{"rules": rules}]}}).encode()
    assert PrometheusClient(scripted.url).rules() == [
        PrometheusRule("a", "ok", ""), PrometheusRule("b", "err", "many-to-many"),
    ]  # fmt: skip


def test_alerts_carry_their_state(scripted: Scripted) -> None:
    labels = {"alertname": "A", "run_id": "r"}
    alert = {"labels": labels, "annotations": {}, "state": "firing", "activeAt": "2026-01-01T00:00:00Z", "value": "1"}
    scripted.body = json.dumps({"status": "success", "data": {"alerts": [alert]}}).encode()
    assert PrometheusClient(scripted.url).alerts() == [PrometheusAlert(labels, "firing")]
    scripted.body = json.dumps({"status": "success", "data": {"alerts": [{"state": "firing"}]}}).encode()
    with pytest.raises(PrometheusError, match="expected a list of alerts"):
        PrometheusClient(scripted.url).alerts()


@cases(
    ("status", "body", "reason"),
    [
        (400, b'{"status": "error", "errorType": "bad_data", "error": "no\\nname"}', "bad_data: no name"),
        (503, b'{"status": "error", "errorType": "timeout", "error": "slow"}', "refused, status 503: .*timeout: slow"),
        (500, b"oops", "answered 500"),
        (302, b"", "answered 302"),
        (200, b"<html>", "expected JSON"),
        (200, b"[]", "expected JSON"),
        (200, b'{"status": "success"}', "expected JSON"),
        (200, answer([], "scalar"), "expected a vector"),
        (200, answer({}), "expected a vector"),
        (200, answer([{"metric": {}}]), "expected a vector of samples"),
        (200, answer([{"metric": {}, "value": [1, "x"]}]), "expected a vector of samples"),
        (200, answer([{"metric": [], "value": [1, "1"]}]), "expected a vector of samples"),
        (200, answer([{"metric": {}, "histogram": [1, {}]}]), "expected a vector of samples"),
        (200, answer([], warnings=["remote read: gone"]), "warns: .*remote read: gone; its answer may be incomplete"),
    ],
)
def test_an_answer_that_cannot_be_used_gives_the_reason(
    scripted: Scripted, status: int, body: bytes, reason: str
) -> None:
    scripted.status, scripted.body = status, body
    with pytest.raises(PrometheusError, match=reason):
        PrometheusClient(scripted.url).query("up")


def test_a_remark_on_the_expression_is_no_warning(scripted: Scripted) -> None:
    scripted.body = answer([], warnings=["PromQL info: metric might not be a counter"], infos=["another"])
    assert PrometheusClient(scripted.url).query("up") == []


def test_a_server_that_does_not_listen_is_unreachable() -> None:
    with pytest.raises(PrometheusError, match=r"is unreachable: http://127.0.0.1:1/api/v1/query: connection"):
        PrometheusClient("http://127.0.0.1:1").query("up")
