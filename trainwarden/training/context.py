"""A process's part in an attempt, and the documents of the record that describe it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwarden.environment import instance_id, read_run_settings
from trainwarden.identity import AttemptKey, host_name
from trainwarden.record.attempt import AttemptStart
from trainwarden.record.clock import to_iso
from trainwarden.record.metadata import VERSION, Metadata
from trainwarden.record.progress import Checkpoint, Progress
from trainwarden.record.rank import RankBeat
from trainwarden.record.step_durations import StepDurations
from trainwarden.record.thresholds import Thresholds
from trainwarden.training.events import CaughtError, RunEvent
from trainwarden.training.gpu_memory import GpuDevice, MemoryBefore
from trainwarden.training.loop import LoopSnapshot, Rates, finite
from trainwarden.training.rank_process import RankProcess


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
    beginning: AttemptStart | None
    world_size: int | None
    total_steps: int | None
    framework: str | None
    model: str | None
    method: str | None
    thresholds: Thresholds
    environment: Mapping[str, str] = field(default_factory=dict)
    instance_id: str = field(default_factory=lambda: instance_id() or host_name())
    process: RankProcess = field(default_factory=RankProcess.current)
    otel: bool = False

    def metadata(
        self,
        start: AttemptStart,
        state: AttemptState,
        now: float,
        *,
        write_errors: int = 0,
        lines_dropped: int = 0,
        copy_state: Mapping[str, Any] | None = None,
        device: GpuDevice | None = None,
    ) -> Metadata:
        """Return `metadata.json` at `now`, Unix seconds; `device` is the GPU in use, where it is known."""
        # After the clock was set back a start may lie in the future; readers must not wait for it.
        latest = now if state.end_time is None else state.end_time
        this = start.this
        if this.resume_step is None and state.first_step is not None:
            this = this.replace(resume_step=state.first_step)
        return Metadata(
            run_id=self.run_id,
            status=state.status,
            phase=state.phase,
            last_update=now,
            instance_id=self.instance_id,
            version=VERSION,
            attempt=this.attempt,
            attempt_key=str(self.key),
            job_id=self.key.job_id,
            scheduler=self.key.scheduler,
            attempts=(*start.attempts[:-1], this),
            start_time=start.start_time,
            attempt_start_time=min(self.start, latest),
            phase_time=min(state.phase_time, latest),
            end_time=state.end_time,
            reason=state.reason,
            framework=self.framework,
            model=self.model,
            method=self.method,
            world_size=self.world_size,
            host=host_name(),
            pid=os.getpid(),
            environment=self.environment,
            write_errors=write_errors or None,
            lines_dropped=lines_dropped or None,
            thresholds=self.thresholds,
            s3=copy_state or {},
        ).replace(**({"gpu_type": device.name, "gpu_count": device.count} if device else {}), **read_run_settings())

    def progress(
        self, start: AttemptStart, view: LoopSnapshot, rates: Rates, checkpoints: tuple[Checkpoint, ...], saved: int
    ) -> Progress:
        """Return `progress.json`.

        Args:
            start: of the attempt.
            view: the state of the loop.
            rates: of tokens and samples.
            checkpoints: the latest ones, newest first.
            saved: how many checkpoints all attempts have saved.
        """
        return Progress(
            step=view.step,
            total_steps=self.total_steps,
            loss=finite(view.loss),
            learning_rate=finite(view.learning_rate),
            last_updated=view.last_updated,
            version=VERSION,
            attempt=start.this.attempt,
            attempt_key=str(self.key),
            step_time=view.step_time,
            moved_time=view.moved_time,
            high_water=view.high_water,
            steps_completed=view.steps_completed,
            nonfinite=view.nonfinite,
            epoch=view.epoch,
            grad_norm=finite(view.grad_norm),
            tokens_per_second=rates.tokens,
            samples_per_second=rates.samples,
            step_durations=StepDurations.of(view.step_seconds),
            metrics=view.metrics,
            checkpoint=checkpoints[0] if checkpoints else None,
            checkpoints_saved=saved,
            checkpoints=checkpoints,
        )

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

    def rank_beat(
        self,
        state: AttemptState,
        step: int | None,
        now: float,
        device: GpuDevice | None = None,
        before: MemoryBefore | None = None,
        sections: Mapping[str, float] | None = None,
    ) -> RankBeat:
        """Return the beat of the rank at `now`, Unix seconds.

        Args:
            state: of the attempt.
            step: where the loop is.
            now: Unix seconds.
            device: the GPU in use, where it is known.
            before: its memory before training, where it is known.
            sections: mean seconds of a step.
        """
        process = self.process if device is None else self.process.using(device)
        known = {
            "gpu": process.gpu,
            "uuid": process.uuid,
            "gpu_taken_bytes": before.used_by_others if before and not before.is_healthy else None,
            "process_start": process.start,
            "pid_namespace": process.namespace,
            "sections": sections or None,
        }
        return RankBeat(
            rank=self.rank,
            step=step,
            phase=state.phase,
            status=state.status,
            time=now,
            host=host_name(),
            pid=process.pid,
            attempt_key=str(self.key),
        ).replace(**{name: value for name, value in known.items() if value is not None})


def script_name() -> str | None:
    """Return the name of the running program without its folder; None in an interactive interpreter."""
    # An embedded interpreter may have no sys.argv.
    name = Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
    return name if name and name != "-c" else None
