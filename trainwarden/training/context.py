"""A process's part in an attempt, and the documents of the record that describe it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainwarden.environment import read_wishes
from trainwarden.identity import AttemptKey, host_name
from trainwarden.record.clock import to_iso
from trainwarden.record.files import Attempt, Checkpoint
from trainwarden.record.sentinels import MAX_MESSAGE, shorten
from trainwarden.record.thresholds import Thresholds
from trainwarden.training.attempt import Beginning
from trainwarden.training.events import CaughtError, RunEvent
from trainwarden.training.loop import LoopSnapshot, Rates, finite

VERSION = 1


@dataclass(frozen=True)
class AttemptState:
    """The part of an attempt's metadata that changes while it runs. Times are Unix seconds."""

    phase: str
    phase_time: float
    status: str = "running"
    reason: str | None = None
    end_time: float | None = None
    first_step: int | None = None


@dataclass(frozen=True)
class RunContext:
    """A process's part in an attempt. `beginning` is None except on rank 0, which alone writes for the whole run."""

    run_id: str
    folder: Path
    key: AttemptKey
    rank: int
    start: float
    beginning: Beginning | None
    world_size: int | None
    total_steps: int | None
    framework: str | None
    model: str | None
    method: str | None
    thresholds: Thresholds
    environment: Mapping[str, str] = field(default_factory=dict)

    def metadata(self, beginning: Beginning, state: AttemptState, now: float, write_errors: int) -> dict[str, Any]:
        """Return the document of `metadata.json`; `now` is Unix seconds."""
        # After the clock was set back a start may lie in the future; readers must not wait for it.
        latest = now if state.end_time is None else state.end_time
        this = beginning.this
        if this.resume_step is None and state.first_step is not None:
            this = replace(this, resume_step=state.first_step)
        return {
            "run_id": self.run_id,
            "status": state.status,
            "phase": state.phase,
            "last_update": to_iso(now),
            "instance_id": self.environment.get("ec2_instance_id") or host_name(),
            "version": VERSION,
            "attempt": this.attempt,
            "attempt_key": str(self.key),
            "job_id": self.key.job_id,
            "scheduler": self.key.scheduler,
            "attempts": [_attempt(one) for one in (*beginning.attempts[:-1], this)],
            "start_time": to_iso(beginning.start_time),
            "attempt_start_time": to_iso(min(self.start, latest)),
            "phase_time": to_iso(min(state.phase_time, latest)),
            "end_time": None if state.end_time is None else to_iso(state.end_time),
            "reason": state.reason and " ".join(shorten(state.reason, MAX_MESSAGE).split()),
            "framework": self.framework,
            "model": self.model,
            "method": self.method,
            "world_size": self.world_size,
            "host": host_name(),
            "pid": os.getpid(),
            "environment": self.environment or None,
            "write_errors": write_errors or None,
            **read_wishes(),
            "thresholds": self.thresholds.as_json(),
        }

    def progress(
        self, beginning: Beginning, view: LoopSnapshot, rates: Rates, checkpoints: tuple[Checkpoint, ...], saved: int
    ) -> dict[str, Any]:
        """Return the document of `progress.json`.

        Args:
            beginning: of the attempt.
            view: the state of the loop.
            rates: of tokens and samples.
            checkpoints: the latest ones, newest first.
            saved: how many checkpoints all attempts have saved.
        """
        last = {**_checkpoint(checkpoints[0]), "count": saved} if checkpoints else None
        return {
            "step": view.step,
            "total_steps": self.total_steps,
            "loss": finite(view.loss),
            "learning_rate": finite(view.learning_rate),
            "last_updated": None if view.last_updated is None else to_iso(view.last_updated),
            "version": VERSION,
            "attempt": beginning.this.attempt,
            "attempt_key": str(self.key),
            "step_time": None if view.step_time is None else to_iso(view.step_time),
            "moved_time": None if view.moved_time is None else to_iso(view.moved_time),
            "high_water": view.high_water,
            "steps_completed": view.steps_completed,
            "nonfinite": view.nonfinite,
            "epoch": view.epoch,
            "grad_norm": finite(view.grad_norm),
            "tokens_per_second": rates.tokens,
            "samples_per_second": rates.samples,
            "metrics": view.metrics or None,
            "checkpoint": last,
            "checkpoints": [_checkpoint(one) for one in checkpoints] or None,
        }

    def start_data(self) -> dict[str, Any]:
        """Return the data of the event `training_started`."""
        return {
            "script": script_name(),
            "attempt": self.beginning.this.attempt if self.beginning else None,
            "attempt_key": str(self.key),
            "total_steps": self.total_steps,
            "framework": self.framework,
            "model": self.model,
            "method": self.method,
            "world_size": self.world_size,
            "host": host_name(),
        }

    def event_line(self, event: RunEvent) -> dict[str, Any]:
        """Return a line of `events.jsonl`."""
        return {"timestamp": to_iso(event.time), "event_type": event.event, "data": event.data}

    def error_line(self, caught: CaughtError) -> dict[str, Any]:
        """Return a line of `errors.jsonl`."""
        return {
            "timestamp": to_iso(caught.time),
            "exception_type": caught.exception_type,
            "error_message": caught.message,
            "severity": caught.severity,
            "category": caught.category,
            "error_type": caught.error_type,
            "failure": caught.failure,
            "traceback": caught.traceback,
            "context": caught.context,
            "script": script_name(),
            "rank": self.rank,
            "attempt": self.beginning.this.attempt if self.beginning else None,
            "attempt_key": str(self.key),
        }

    def rank_beat(self, state: AttemptState, step: int | None, now: float) -> dict[str, Any]:
        """Return the document of `ranks/<rank>.json`; `now` is Unix seconds."""
        return {
            "rank": self.rank,
            "step": step,
            "phase": state.phase,
            "status": state.status,
            "time": to_iso(now),
            "host": host_name(),
            "pid": os.getpid(),
            "attempt_key": str(self.key),
        }


def script_name() -> str | None:
    """Return the name of the running program without its folder; None in an interactive interpreter."""
    # An embedded interpreter may have no sys.argv.
    name = Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
    return name if name and name != "-c" else None


def _attempt(attempt: Attempt) -> dict[str, Any]:
    start = None if attempt.start_time is None else to_iso(attempt.start_time)
    entry = {"attempt": attempt.attempt, "key": attempt.key, "start_time": start, "resume_step": attempt.resume_step}
    return {name: value for name, value in entry.items() if value is not None}


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    saved = None if checkpoint.time is None else to_iso(checkpoint.time)
    entry = {"path": checkpoint.path, "step": checkpoint.step, "time": saved, "size_bytes": checkpoint.size_bytes}
    return {name: value for name, value in entry.items() if value is not None}
