"""A run's newest attempt and its progress, from Prometheus."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError, PrometheusSample
from trainwarden_remediator.errors import Unknown

RESTARTS_METRIC = "trainwarden_remediator_run_restarts"
OBSERVED = "run:training_observed_timestamp_seconds:max"
# A query is part of an address, which servers and proxies limit to some kilobytes.
_RUNS_PER_QUERY = 50
_SERIES = (
    "training_run_info",
    "training_run_attempt",
    "training_attempt_start_timestamp_seconds",
    "training_run_state",
    "training_step",
    "training_step_high_water",
    "training_failure_info",
    "training_failure_timestamp_seconds",
    "training_run_end_timestamp_seconds",
    "training_life_timestamp_seconds",
    "training_step_timestamp_seconds",
    "training_motion_timestamp_seconds",
    "training_stall_budget_seconds",
    "training_stale_threshold_seconds",
    "training_checkpoint_step",
    "training_step_duration_seconds",
    "training_step_durations_observed",
    "training_loss",
    "training_nccl_transport_ok",
    "training_run_plain",
    "training_log_state_timestamp_seconds",
)
# Of how the run works, to compare it with itself.
_FIGURES = _SERIES[-6:-2]
# What says from outside of its record whether it works. Made by rules, without the labels of a target.
_VITALS = (
    "run:gpu_units_active:avg",
    "run:gpu_power_watts:avg",
    "run:gpu_power_watts:usual",
    "run:gpu_utilization:avg",
    "run:efa_tx_bytes:rate5m",
    "run:infiniband_tx_bytes:rate2m",
    "training_log_last_write_timestamp_seconds",
    # "Now" by the clock on which the ages of its record are measured: that of its exporter.
    OBSERVED,
)


@dataclass(frozen=True)
class ReportedRun:
    """The newest attempt of a run. None is unknown; `started` is Unix time, `high_water` counts across attempts.

    `policy` is the restart policy that the record requests: a user's text, not validated. `failed`, `alive` (the last
    sign of life of any kind) and `stepped` (when the step last rose) are Unix time, too, by the clocks of the run's
    hosts. `others` are records of other attempts that claim to be the run, newest first. `moved` is when it last made a
    step or entered a phase: it may take `stall_budget` seconds for a step of that, and be silent for `stale_threshold`
    seconds. `figures` are how it works, and `vitals` what other sources than its record say of that, by the names of
    the metrics. `cluster` is that of its series, empty where they have no such label. `plain`: its job writes no
    record, so all that its record says of its work is from its log, which may be buffered. `stated` is when a signal of
    its user stated in its log that it has crashed, hangs or has timed out, by failure mode.
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
    failed: float | None = None
    alive: float | None = None
    stepped: float | None = None
    moved: float | None = None
    stall_budget: float | None = None
    stale_threshold: float | None = None
    checkpoint_step: float | None = None
    cluster: str = ""
    plain: bool = False
    stated: Mapping[str, float] = field(default_factory=dict, compare=False)
    figures: Mapping[str, float] = field(default_factory=dict, compare=False)
    vitals: Mapping[str, float] = field(default_factory=dict, compare=False)
    others: tuple[ReportedRun, ...] = field(default=(), compare=False)

    def broke(self, mode: str) -> float | None:
        """Return when it failed by its record, else when its log stated this failure mode; None if neither did."""
        return self.failed if self.failed is not None else self.stated.get(mode)


Evidence = ReportedRun | Unknown | None
_UNEXPECTED = Unknown("Prometheus gave an unexpected answer: expected each series with its name and labels")


class RunSource(Protocol):
    """Reads the state of runs."""

    def runs(self, run_ids: Collection[str]) -> Mapping[str, Evidence]:
        """Return each of these runs; None where the source answers and has no such run."""

    def restarts(self, database: str) -> Mapping[str, float] | Unknown:
        """Return how many restarts of each run this database has ever been seen to have on record."""


class PrometheusRuns:
    """Reads runs from Prometheus, many with one query.

    Args:
        prometheus: to query.
        cluster: series with the label of another one are not used. Where it is empty, a run id that several clusters
            use is unknown.
    """

    def __init__(self, prometheus: PrometheusClient, cluster: str = "") -> None:
        self._prometheus = prometheus
        self._cluster = cluster

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        """Return the runs. Their ids must be well formed: they become part of a query."""
        found: dict[str, Evidence] = {}
        ordered = sorted(set(run_ids))
        for first in range(0, len(ordered), _RUNS_PER_QUERY):
            found |= self._read(ordered[first : first + _RUNS_PER_QUERY])
        return found

    def _read(self, run_ids: list[str]) -> dict[str, Evidence]:
        ids = f'="{run_ids[0]}"' if len(run_ids) == 1 else f'=~"{"|".join(run_ids).replace(".", "[.]")}"'
        samples: dict[str, list[PrometheusSample]] = {run_id: [] for run_id in run_ids}
        try:
            for sample in self._prometheus.query(f'{{__name__=~"{"|".join((*_SERIES, *_VITALS))}",run_id{ids}}}'):
                samples[sample.labels["run_id"]].append(sample)
        except PrometheusError as error:
            return dict.fromkeys(run_ids, Unknown(str(error)))
        except KeyError:
            return dict.fromkeys(run_ids, _UNEXPECTED)
        return {run_id: self._of_run(run_id, of_run) for run_id, of_run in samples.items()}

    def _of_run(self, run_id: str, samples: list[PrometheusSample]) -> Evidence:
        clusters = {named for sample in samples if (named := sample.labels.get("cluster"))}
        if not self._cluster and len(clusters) > 1:
            names = " and ".join(sorted(clusters)[:3])
            return Unknown(f"the run id is used in {names}: --cluster must name the one to act in")
        try:
            return read_run(run_id, [each for each in samples if self._is_ours(each)])
        except KeyError:
            return _UNEXPECTED

    def restarts(self, database: str) -> dict[str, float] | Unknown:
        """Return the most restarts of each run that this database has had on record in 30 days."""
        query = f'max_over_time({RESTARTS_METRIC}{{database="{database}"}}[30d])'
        most: dict[str, float] = {}
        try:
            for sample in self._prometheus.query(query):
                if self._is_ours(sample) and (run_id := sample.labels.get("run_id")):
                    most[run_id] = max(sample.value, most.get(run_id, 0.0))
        except PrometheusError as error:
            return Unknown(str(error))
        return most

    def _is_ours(self, sample: PrometheusSample) -> bool:
        return not self._cluster or sample.labels.get("cluster", "") in ("", self._cluster)


_MOMENTS = (
    "training_life_timestamp_seconds",
    "training_step_timestamp_seconds",
    "training_failure_timestamp_seconds",
    "training_run_end_timestamp_seconds",
)


@dataclass
class _Record:
    """The series of one target by one Prometheus.

    Two machines may both keep a record of the run, and only one of them is current. Replicas of Prometheus show each
    record as often, each as of its own last scrape.
    """

    info: Mapping[str, str] | None = None
    states: set[str] = field(default_factory=set)
    stated: dict[str, float] = field(default_factory=dict)
    failure: Mapping[str, str] | None = None
    values: dict[str, float] = field(default_factory=dict)

    def order(self) -> tuple[float, ...]:
        """Return what makes it newer than another: its attempt, then what it shows last of that."""
        start = self.values.get("training_attempt_start_timestamp_seconds", 0.0)
        last = max((self.values.get(name, 0.0) for name in _MOMENTS), default=0.0)
        return start, self.values["training_run_attempt"], last, self.values.get("training_step", 0.0)


def read_run(run_id: str, samples: Iterable[PrometheusSample]) -> ReportedRun | None:
    """Return the newest attempt among the series of a run; raises KeyError where a series lacks its name or state."""
    usable = [each for each in samples if each.labels.get("run_id") == run_id and math.isfinite(each.value)]
    # This series has no labels but those of the target and of the Prometheus that scraped it, such as its replica's.
    of_source = sorted(
        {name for each in usable if each.labels["__name__"] == "training_run_attempt" for name in each.labels}
        - {"__name__", "run_id"}
    )
    records: dict[tuple[str, ...], _Record] = defaultdict(_Record)
    for sample in usable:
        labels = sample.labels
        if labels["__name__"] in _VITALS:
            continue
        _add(records[tuple(labels.get(name, "") for name in of_source)], labels, sample.value)
    complete = [each for each in records.values() if each.info and "training_run_attempt" in each.values]
    if not complete:
        return None
    complete.sort(key=_Record.order, reverse=True)
    newest, *older = [_run(run_id, record) for record in complete]
    newest = _with_signs_of_life(newest, [each for each in older if each.attempt_key == newest.attempt_key])
    others = {each.attempt_key: each for each in reversed(older) if each.attempt_key != newest.attempt_key}
    vitals: dict[str, float] = {}
    for sample in usable:
        name = sample.labels["__name__"]
        if name in _VITALS:  # replicas of Prometheus show each as often
            vitals[name] = max(sample.value, vitals.get(name, sample.value))
    older = [replace(each, vitals=vitals) for each in reversed(others.values())]
    return replace(newest, others=tuple(older), vitals=vitals)


def _with_signs_of_life(newest: ReportedRun, same: Iterable[ReportedRun]) -> ReportedRun:
    """Return the newest record of an attempt with the latest signs of life and work of all records of that attempt."""
    records = [newest, *same]
    return replace(
        newest,
        step=_latest(each.step for each in records),
        high_water=_latest(each.high_water for each in records),
        alive=_latest(each.alive for each in records),
        stepped=_latest(each.stepped for each in records),
        moved=_latest(each.moved for each in records),
    )


def _latest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _add(record: _Record, labels: Mapping[str, str], value: float) -> None:
    name = labels["__name__"]
    if name == "training_run_info":
        record.info = labels
    elif name == "training_failure_info":
        record.failure = labels
    elif name == "training_log_state_timestamp_seconds":
        record.stated[labels["state"]] = max(value, record.stated.get(labels["state"], value))
    elif name == "training_run_state":
        if value == 1:
            record.states.add(labels["state"])
    elif name == "training_motion_timestamp_seconds":  # of each phase that it has been in lately
        record.values[name] = max(value, record.values.get(name, value))
    elif name != "training_step_duration_seconds" or labels.get("quantile") == "0.5":
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
        state=next(iter(record.states)) if len(record.states) == 1 else None,
        step=record.values.get("training_step"),
        high_water=record.values.get("training_step_high_water"),
        started=record.values.get("training_attempt_start_timestamp_seconds"),
        error_type=failure.get("error_type"),
        subsystem=failure.get("subsystem"),
        failure=failure.get("failure"),
        policy=(record.info or {}).get("policy") or None,
        failed=record.values.get("training_failure_timestamp_seconds"),
        alive=record.values.get("training_life_timestamp_seconds"),
        stepped=record.values.get("training_step_timestamp_seconds"),
        moved=record.values.get("training_motion_timestamp_seconds"),
        stall_budget=record.values.get("training_stall_budget_seconds"),
        stale_threshold=record.values.get("training_stale_threshold_seconds"),
        checkpoint_step=record.values.get("training_checkpoint_step"),
        cluster=(record.info or {}).get("cluster", ""),
        plain=bool(record.values.get("training_run_plain")),
        stated=record.stated,
        figures={name: record.values[name] for name in _FIGURES if name in record.values},
    )
