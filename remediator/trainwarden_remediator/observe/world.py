"""What the remediator reads and acts upon, as ports: clock, alerts, runs, schedulers, run records."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainwarden.jobs.checkpoints import resume_variables
from trainwarden.record.folder import METADATA
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.resume import read_choice
from trainwarden.record.sentinels import Sentinel, current_completion
from trainwarden.record.store import RecordStore
from trainwarden.record.superseded import living_rival
from trainwarden_remediator.drivers.driver import Driver, JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert, clean, parse_key
from trainwarden_remediator.incidents.price import NoPrices, PriceSource
from trainwarden_remediator.observe.cpu_time import CpuSource, NoCpu
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun, RunSource
from trainwarden_remediator.observe.nodes import NodeSource, NoNodes

# A record that was not written for longer is of a process that is gone or stopped.
_LIVE_SECONDS = 30.0

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


class Records:
    """The run records below `runs_dir`; None where the remediator cannot see them: then every answer is "no"."""

    def __init__(self, runs_dir: Path | None) -> None:
        self._runs_dir = runs_dir

    def complete(self, run: ReportedRun) -> bool:
        """Return whether the run's current attempt left a `_complete`. Unreadable is not complete."""
        if self._runs_dir is None:
            return False
        return isinstance(current_completion(self._runs_dir / run.run_id, run.attempt_key, run.started), Sentinel)

    def owner(self, run_id: str) -> int | None:
        """Return the uid that writes the record; None where that is not seen.

        Of a record that root or this process's own user writes for a job that writes none, the uid that it names:
        nobody else may write on behalf of another user.
        """
        if self._runs_dir is None:
            return None
        for path in (self._runs_dir / run_id / METADATA, self._runs_dir / run_id):
            with suppress(OSError):
                writer = path.stat(follow_symlinks=False).st_uid
                written = self._on_behalf(run_id)
                return writer if written is None or written.user_id is None else written.user_id
        return None

    def resume_variables(self, run_id: str, path: str, step: float | None) -> dict[str, str]:
        """Return the variables with which a job that writes no record begins from a checkpoint, by its rule."""
        written = self._on_behalf(run_id)
        if written is None:
            return {}
        return resume_variables(written.resume, path, None if step is None else int(step)) or {}

    def _on_behalf(self, run_id: str) -> Metadata | None:
        """Return the record of a run that root or this process's own user writes for its job; None for any other."""
        if self._runs_dir is None:
            return None
        with suppress(OSError):
            if (self._runs_dir / run_id / METADATA).stat(follow_symlinks=False).st_uid in (0, os.geteuid()):
                metadata = read_metadata(self._runs_dir / run_id)
                return metadata if isinstance(metadata, Metadata) and metadata.user_id is not None else None
        return None

    def rival(self, run_id: str, now: float) -> str | None:
        """Return what lives beside the run's present attempt: an older one of the same run; None if nothing does."""
        found = living_rival(self._runs_dir / run_id, now) if self._runs_dir is not None else None
        if found is None:
            return None
        step = "" if found.step is None else f" at step {found.step}"
        return f"attempt {found.attempt} still runs on {clean(found.host or '?', 80)} (pid {found.pid}){step}"

    def saving(self, run_id: str, attempt_key: str, now: float) -> float | None:
        """Return for how many seconds a live attempt has been saving a checkpoint; None where it does not."""
        metadata = read_metadata(self._runs_dir / run_id) if self._runs_dir is not None else None
        if not isinstance(metadata, Metadata) or metadata.attempt_key != attempt_key or metadata.status != "running":
            return None
        if metadata.phase != "checkpoint" or metadata.phase_time is None:
            return None
        is_live = now - (metadata.last_update or 0.0) <= _LIVE_SECONDS
        return max(0.0, now - metadata.phase_time) if is_live else None

    def figures(self, run_id: str, attempt_key: str) -> dict[str, int | str | None]:
        """Return the fields of `Figures` that the record of an attempt holds."""
        if self._runs_dir is None:
            return {}
        folder = self._runs_dir / run_id
        metadata, choice = read_metadata(folder), read_choice(folder)
        found: dict[str, int | str | None] = {}
        if isinstance(metadata, Metadata) and metadata.attempt_key == attempt_key:
            found["world_size"] = metadata.world_size
            found["first_step"] = next((one.resume_step for one in metadata.attempts if one.key == attempt_key), None)
        if choice is not None and choice.attempt_key == attempt_key:
            found |= {"resumed_step": choice.step, "resumed_path": choice.path or ""}
        return found

    def announce_restart(
        self, run_id: str, attempt_key: str, reason: str, intent: str, checkpoint_trust: str | None = None
    ) -> str | None:
        """Write `_restart`, from which the attempt learns why it ends; return the error, which stops nothing."""
        if self._runs_dir is None:
            return None
        try:
            if not (self._runs_dir / run_id).is_dir():
                return None
            RecordStore(self._runs_dir / run_id).announce_restart(attempt_key, reason, intent, checkpoint_trust)
        except OSError as error:
            return f"the restart could not be announced in the record: {error.strerror}"
        return None


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
