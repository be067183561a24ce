"""The world outside, as ports: what is read again before every step, and what acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwarden_remediator.clock import Clock
from trainwarden_remediator.drivers.driver import Driver
from trainwarden_remediator.evidence import RunSource
from trainwarden_remediator.poll import AlertSource
from trainwarden_remediator.records import Records


@dataclass(frozen=True)
class World:
    """Everything that is not ours. `drivers` are keyed by the scheduler's name."""

    clock: Clock
    alerts: AlertSource
    runs: RunSource
    drivers: Mapping[str, Driver]
    records: Records
