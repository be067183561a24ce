"""What the remediator reads and acts upon, as ports: clock, alerts, runs, schedulers, run records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden_remediator.drivers.driver import Driver, JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, parse_key
from trainwarden_remediator.incidents.price import NoPrices, PriceSource
from trainwarden_remediator.observe.cpu_time import CpuSource, NoCpu
from trainwarden_remediator.observe.evidence import Evidence, RunSource
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes
from trainwarden_remediator.observe.records import Records

Firing = list[Alert] | Unknown


class Clock(Protocol):
    """`now` is wall-clock Unix time and may jump; `monotonic` only measures durations inside this process."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never backwards."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some point in the past."""
        return time.monotonic()


class AlertSource(Protocol):
    """Lists the alerts that are firing."""

    def firing(self) -> Firing:
        """Return every remediable alert that is active, not silenced and not inhibited."""


@dataclass(frozen=True)
class World:
    """Everything outside the remediator. `drivers` are keyed by the scheduler's name.

    `canary_users` are the uids whose job may be the canary; empty where none is kept.
    """

    clock: Clock
    alerts: AlertSource
    runs: RunSource
    drivers: Mapping[str, Driver]
    records: Records
    nodes: NodeSource = field(default_factory=NoNodes)
    prices: PriceSource = field(default_factory=NoPrices)
    canary_users: frozenset[int] = frozenset()
    cpu: CpuSource = field(default_factory=NoCpu)

    def run(self, run_id: str) -> Evidence:
        """Return one run; its id must be well formed."""
        return self.runs.runs((run_id,))[run_id]

    def has_ended(self, attempt_key: str) -> bool:
        """Return whether the scheduler has ended the job of an attempt by a failure."""
        key = parse_key(attempt_key)
        driver = self.drivers.get(key.scheduler) if key else None
        job = driver.job(key.job_id) if key and driver else None
        return isinstance(job, ScheduledJob) and job.state is JobState.FAILED
