"""Bodies from anybody: taken whole, or refused with a reason; never half, never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.server.messages import BadRequest
from trainwarden_remediator.incidents.webhook import read_delivery

ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "TrainRunFailed", "run_id": "r", "remediate": "true"},
    "startsAt": "2027-01-02T03:04:05.123456789Z",
}


def body(*alerts: object, **fields: object) -> bytes:
    return json.dumps({"version": "4", "alerts": list(alerts), **fields}).encode()


def test_unknown_fields_of_newer_versions_are_ignored() -> None:
    delivery = read_delivery(body({**ALERT, "new": {}}, notification_reason="x", routeLabels={}))
    assert [alert.run_id for alert in delivery.firing] == ["r"]
    assert delivery.firing[0].starts_at == pytest.approx(1798859045.123456)


def test_resolved_alerts_and_those_that_ask_for_nothing_are_no_work() -> None:
    quiet = {**ALERT, "labels": {**ALERT["labels"], "remediate": "false"}}
    assert read_delivery(body({**ALERT, "status": "resolved"}, quiet)).firing == ()


def test_how_many_alerts_were_cut_off_is_seen() -> None:
    assert read_delivery(body(truncatedAlerts=7)).truncated == 7


def test_the_same_alert_has_the_same_key_whatever_the_order_of_its_labels() -> None:
    turned = {**ALERT, "labels": dict(reversed(ALERT["labels"].items()))}
    first, second = read_delivery(body(ALERT, turned)).firing
    assert first.key == second.key


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"", 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[" * 200_000, 400, "no JSON"),
        (b"null", 422, "expected"),
        (b"[]", 422, "expected"),
        (body(ALERT, version="3"), 422, "version: '3': expected '4'"),
        (body("x"), 422, "alerts[0]: 'x': expected"),
        (body({**ALERT, "labels": {"a": 1}}), 422, "alerts[0].labels.a: 1: expected a valid string"),
        (body({**ALERT, "status": "maybe"}), 422, "alerts[0].status: 'maybe': expected 'firing' or 'resolved'"),
        (body(truncatedAlerts=-1), 422, "truncatedAlerts: -1: expected"),
        (body(*[ALERT] * 1001), 413, "more than 1000 alerts"),
        (b" " * (1 << 20) + b"{}", 413, "more than 1048576 bytes"),
    ],
)
def test_a_bad_body_is_refused_with_its_status_and_a_reason(data: bytes, status: int, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        read_delivery(data)
    assert error.value.status == status
    assert said in str(error.value)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ALERT, "version", "alerts"]), inner),
    max_leaves=20,
)


@given(st.binary(max_size=100) | anything.map(lambda value: json.dumps(value).encode()))
def test_no_body_at_all_raises_anything_else(data: bytes) -> None:
    try:
        read_delivery(data)
    except BadRequest as error:
        assert error.status in (400, 413, 422)


label_text = st.text(st.characters(codec=None), max_size=20)


@given(st.dictionaries(label_text, label_text, max_size=4))
def test_whatever_labels_hold_comes_through_as_it_was(labels: dict[str, str]) -> None:
    labels = {**labels, "remediate": "true"}
    [alert] = read_delivery(body({**ALERT, "labels": labels})).firing
    assert dict(alert.labels) == labels
    for name in labels:
        shown: Any = alert.label(name)
        assert shown is None or shown.isprintable()
