"""The timeline of an incident, from Prometheus, the remediator's decisions and the run record."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.record.clock import from_iso

_LOOK_BACK_SECONDS = 900.0
_STEP_SECONDS = 1.0


@dataclass(frozen=True)
class Timeline:
    """One incident. Times are Unix seconds, None where unknown.

    Attributes:
        steps_lost: steps that were trained again.
        resumed: whether the new attempt began at a checkpoint.
    """

    alert: str
    attempt: int
    fault: float | None = None
    detected: float | None = None
    alerted: float | None = None
    decided: float | None = None
    restarted: float | None = None
    recovered: float | None = None
    steps_lost: int | None = None
    resumed: bool = False

    def lines(self) -> list[str]:
        """Return a small table: each event in seconds after the fault and after the event before."""
        moments = {
            field.name: value
            for field in fields(self)
            if field.name in _MEANING and (value := getattr(self, field.name)) is not None
        }
        if not moments:
            return [f"{self.alert}, attempt {self.attempt}: no times are known"]
        origin = before = moments.get("fault", min(moments.values()))
        lines = [f"{self.alert}, attempt {self.attempt}:"]
        for name, stated in moments.items():
            # Times from Prometheus are rounded to seconds; keep the order of events.
            moment = max(stated, before)
            lines.append(f"  {name:<10} {moment - origin:7.1f} s   (+{moment - before:5.1f} s)  {_MEANING[name]}")
            before = moment
        if self.steps_lost is not None:
            origin = "the checkpoint" if self.resumed else "the beginning"
            lines.append(f"  work lost  {self.steps_lost} steps, trained again from {origin}")
        return lines


_MEANING = {
    "fault": "the last sign of progress, or the recorded failure",
    "detected": "the alert's condition first held in Prometheus",
    "alerted": "the alert reached the remediator",
    "decided": "the remediator decided",
    "restarted": "the new attempt began",
    "recovered": "its step passed the highest one of before",
}


def timeline(incident: Mapping[str, Any], record: Mapping[str, Any], prometheus: PrometheusClient) -> Timeline:
    """Return the timeline of one incident of the remediator, with the run's metadata.json as `record`."""
    run_id, attempt, alert = incident["run_id"], int(incident["attempt"]), incident["alert"]
    created = float(incident["created"])
    selector = f'run_id="{run_id}",alertname="{alert}",attempt="{attempt}"'
    detected = _first_seen(prometheus, f"ALERTS{{{selector}}}", created)
    following = _attempt(record, attempt + 1) if incident["action"] == "restart" else None
    restarted = following["started"] if following else None
    before = incident.get("step_before")
    recovered = _first_above(prometheus, f'training_step{{run_id="{run_id}"}}', before, restarted)
    lost = None
    if following and before is not None and following["resume_step"] is not None:
        lost = max(0, int(before) - int(following["resume_step"]) + 1)
    return Timeline(
        alert=alert,
        attempt=attempt,
        fault=_fault(prometheus, run_id, detected or created, incident["failure_mode"]),
        detected=detected,
        alerted=_event(incident, received=True),
        decided=_event(incident, received=False),
        restarted=restarted,
        recovered=recovered,
        steps_lost=lost,
        resumed=bool(following and (following["resume_step"] or 0) > 1),
    )


def _fault(prometheus: PrometheusClient, run_id: str, when: float, mode: str) -> float | None:
    metric = "training_failure_timestamp_seconds" if mode == "crash" else "training_step_timestamp_seconds"
    with contextlib.suppress(PrometheusError):
        for sample in prometheus.query(f'max({metric}{{run_id="{run_id}"}})', when):
            return sample.value
    return None


def _first_seen(prometheus: PrometheusClient, expression: str, until: float) -> float | None:
    with contextlib.suppress(PrometheusError):
        # Points lie between evaluations: the first with the alert may be later than its delivery.
        series = prometheus.query_range(expression, until - _LOOK_BACK_SECONDS, until + _STEP_SECONDS)
        return min((each.points[0][0] for each in series if each.points), default=None)
    return None


def _first_above(
    prometheus: PrometheusClient, expression: str, value: float | None, start: float | None
) -> float | None:
    if value is None or start is None:
        return None
    with contextlib.suppress(PrometheusError):
        series = prometheus.query_range(expression, start, start + _LOOK_BACK_SECONDS)
        return min((time for each in series for time, step in each.points if step > value), default=None)
    return None


def _event(incident: Mapping[str, Any], *, received: bool) -> float | None:
    """Return when the alert was received, or else when the decision, the next event, was recorded."""
    events = [event for event in incident.get("events", []) if (event["state"] == "RECEIVED") == received]
    return min((float(event["time"]) for event in events), default=None)


def _attempt(record: Mapping[str, Any], number: int) -> dict[str, Any] | None:
    for entry in record.get("attempts", []):
        if entry["attempt"] == number:
            return {"started": from_iso(entry["start_time"]), "resume_step": entry.get("resume_step")}
    return None
