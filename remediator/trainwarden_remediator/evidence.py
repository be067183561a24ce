"""A run's newest attempt and its progress, from Prometheus."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError, PrometheusSample
from trainwarden_remediator.errors import Unknown

_SERIES = (
    "training_run_info",
    "training_run_attempt",
    "training_attempt_start_timestamp_seconds",
    "training_run_state",
    "training_step",
    "training_step_high_water",
    "training_failure_info",
)


@dataclass(frozen=True)
class ReportedRun:
    """The newest attempt of a run. None is unknown; `started` is Unix time, `high_water` counts across attempts.

    `policy` is the restart policy that the record requests: a user's text, not validated.
    """

    run_id: str
    attempt: int
    attempt_key: str
    state: str | None = None
    step: float | None = None
    high_water: float | None = None
    started: float | None = None
    error_type: str | None = None
    subsystem: str | None = None
    failure: str | None = None
    policy: str | None = None


Evidence = ReportedRun | Unknown | None


class RunSource(Protocol):
    """Reads the state of runs."""

    def run(self, run_id: str) -> Evidence:
        """Return the run; None where the source answers and has no such run."""


class PrometheusRuns:
    """Reads each run with one query to Prometheus."""

    def __init__(self, prometheus: PrometheusClient) -> None:
        self._prometheus = prometheus

    def run(self, run_id: str) -> Evidence:
        """Return the run. `run_id` must be well formed: it becomes part of a query."""
        query = f'{{__name__=~"{"|".join(_SERIES)}",run_id="{run_id}"}}'
        try:
            return read_run(run_id, self._prometheus.query(query))
        except PrometheusError as error:
            return Unknown(str(error))
        except KeyError:
            return Unknown("Prometheus gave an unexpected answer: expected each series with its name and labels")


@dataclass
class _Record:
    """The series of one target: two machines may both keep a record of the run, and only one of them is current."""

    info: Mapping[str, str] | None = None
    states: list[str] = field(default_factory=list)
    failure: Mapping[str, str] | None = None
    values: dict[str, float] = field(default_factory=dict)

    def order(self) -> tuple[float, float]:
        start = self.values.get("training_attempt_start_timestamp_seconds", 0.0)
        return start, self.values["training_run_attempt"]


def read_run(run_id: str, samples: Iterable[PrometheusSample]) -> ReportedRun | None:
    """Return the newest attempt among the series of a run; raises KeyError where a series lacks its name or state."""
    records: dict[tuple[str, str], _Record] = defaultdict(_Record)
    for sample in samples:
        labels = sample.labels
        if labels.get("run_id") == run_id and math.isfinite(sample.value):
            _add(records[labels.get("job", ""), labels.get("instance", "")], labels, sample.value)
    complete = [each for each in records.values() if each.info and "training_run_attempt" in each.values]
    if not complete:
        return None
    return _run(run_id, max(complete, key=_Record.order))


def _add(record: _Record, labels: Mapping[str, str], value: float) -> None:
    name = labels["__name__"]
    if name == "training_run_info":
        record.info = labels
    elif name == "training_failure_info":
        record.failure = labels
    elif name == "training_run_state":
        if value == 1:
            record.states.append(labels["state"])
    else:
        record.values[name] = value


def _run(run_id: str, record: _Record) -> ReportedRun:
    attempt = int(record.values["training_run_attempt"])
    failure = record.failure or {}
    if failure.get("attempt") != str(attempt):
        failure = {}
    return ReportedRun(
        run_id=run_id,
        attempt=attempt,
        attempt_key=(record.info or {}).get("attempt_key", ""),
        state=record.states[0] if len(record.states) == 1 else None,
        step=record.values.get("training_step"),
        high_water=record.values.get("training_step_high_water"),
        started=record.values.get("training_attempt_start_timestamp_seconds"),
        error_type=failure.get("error_type"),
        subsystem=failure.get("subsystem"),
        failure=failure.get("failure"),
        policy=(record.info or {}).get("policy") or None,
    )
