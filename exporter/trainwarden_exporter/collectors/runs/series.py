"""The samples of one run: where a step, a loss or a heartbeat becomes a metric."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from typing import TYPE_CHECKING

from trainwarden.redaction import label_text, name_text
from trainwarden_exporter.collectors.runs import metrics, rank_metrics
from trainwarden_exporter.collectors.runs.liveness import (
    last_life,
    missing_ranks,
    motion,
    rank_ranges,
    ranks_by_host,
    silent_ranks,
)
from trainwarden_exporter.collectors.runs.record import StepTimes, plausible_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Checkpoint, Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.step_durations import StepDurations
    from trainwarden.record.superseded import Superseded
    from trainwarden.signals.progress import LogProgress
    from trainwarden_exporter.collectors.runs.folder import S3Place
    from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.core.shared_state import LogView

HINT_BYTES = 300
UUID_BYTES = 64
# By the field of `Progress`, in records, and of `LogProgress`.
REPORTED = {
    "step": metrics.TRAINING_STEP,
    "epoch": metrics.TRAINING_EPOCH,
    "loss": metrics.TRAINING_LOSS,
    "learning_rate": metrics.TRAINING_LEARNING_RATE,
    "grad_norm": metrics.TRAINING_GRAD_NORM,
    "tokens_per_second": metrics.TRAINING_TOKENS_PER_SECOND,
    "samples_per_second": metrics.TRAINING_SAMPLES_PER_SECOND,
}
# What other metrics, and the remediator, know the run by; and what is only shown.
_NAMES = ("attempt_key", "job_id", "scheduler", "instance_id", "host", "policy")
_SHOWN = ("framework", "model", "method")
_SETTINGS = operator.attrgetter(
    *_NAMES, *_SHOWN, "attempt", "phase", "phase_source", "gpu_count", "gpu_type", "user_id"
)
# A copy that was not confirmed for so many intervals of the collector `s3`, and so long, does not show how old the
# heartbeats are now.
UNCONFIRMED_INTERVALS, UNCONFIRMED_SECONDS = 3, 60.0


def settings_of(record: RunRecord) -> tuple[object, ...]:
    """Return all that `add_settings` makes samples from."""
    limits, metadata = record.thresholds, record.metadata
    stated = None if metadata is None else _SETTINGS(metadata)
    return record.state, limits.stale_seconds, limits.stall_seconds, stated


def add_settings(families: Families, record: RunRecord) -> None:
    """Add the samples that stay while a run trains, without any time: who it is, its state, phase and thresholds."""
    run_id, metadata = record.run_id, record.metadata
    _add_identity(families, run_id, metadata)
    if metadata:
        families.add(metrics.TRAINING_RUN_ATTEMPT, metadata.attempt, run_id=run_id)
        gpu_type = label_text(metadata.gpu_type or "")
        families.add(metrics.TRAINING_RUN_GPUS, metadata.gpu_count, run_id=run_id, gpu_type=gpu_type)
        families.add(metrics.TRAINING_RUN_PLAIN, None if metadata.user_id is None else 1, run_id=run_id)
        _add_phase(families, run_id, metadata)
    if record.state is not None:
        # Of the others only that of running, so that rules that ask for one of them read the runs in it alone.
        for state in dict.fromkeys(("running", record.state)):
            families.add(metrics.TRAINING_RUN_STATE, state == record.state, run_id=run_id, state=state)
    families.add(metrics.TRAINING_STALE_THRESHOLD_SECONDS, record.thresholds.stale_seconds, run_id=run_id)
    for phase, seconds in record.thresholds.stall_seconds.items():
        families.add(metrics.TRAINING_STALL_THRESHOLD_SECONDS, seconds, run_id=run_id, phase=phase)


def add_progress(families: Families, record: RunRecord, steps: StepTimes, now: float) -> None:
    """Add the times of a run, its progress and what it reports: all but the ages of the heartbeats."""
    run_id, metadata, labels = record.run_id, record.metadata, (record.run_id,)
    if metadata:
        began = plausible_timestamp(metadata.phase_time, now)
        families.add_in_order(metrics.TRAINING_PHASE_START_TIMESTAMP_SECONDS, began, labels)
        _add_heartbeat(families, run_id, "metadata", metadata.last_update, now)
    families.add_in_order(
        metrics.TRAINING_ATTEMPT_START_TIMESTAMP_SECONDS, plausible_timestamp(record.attempt_start, now), labels
    )
    families.add_in_order(metrics.TRAINING_RUN_END_TIMESTAMP_SECONDS, plausible_timestamp(record.end, now), labels)
    if record.current_progress:
        _add_heartbeat(families, run_id, "progress", record.current_progress.last_updated, now)
        add_reported(families, run_id, record.current_progress)
        _add_step_durations(families, run_id, record.current_progress.step_durations)
        families.add_in_order(metrics.TRAINING_STEP_TIMESTAMP_SECONDS, plausible_timestamp(steps.advanced, now), labels)
        families.add_in_order(
            metrics.TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS, plausible_timestamp(steps.changed, now), labels
        )
    if record.progress:
        _add_totals(families, run_id, record.progress, now)


def add_liveness(
    families: Families,
    record: RunRecord,
    ranks: Sequence[RankBeat],
    steps: StepTimes,
    logged: float | None,
    now: float,
) -> None:
    """Add when the run last gave a sign of life and moved; `logged` is when the step in its log last changed."""
    labels = (record.run_id,)
    families.add_in_order(metrics.TRAINING_LIFE_TIMESTAMP_SECONDS, last_life(record, ranks, now), labels)
    if record.metadata:
        families.add_in_order(metrics.TRAINING_STALL_BUDGET_SECONDS, record.stall_budget, labels)
    if moves := motion(record, steps, logged, now):
        judged = (record.run_id, moves.phase, moves.basis)
        families.add_in_order(metrics.TRAINING_MOTION_TIMESTAMP_SECONDS, moves.moved, judged)
        families.add_in_order(metrics.TRAINING_ADVANCE_TIMESTAMP_SECONDS, moves.advanced, labels)


def add_hosts(families: Families, run_id: str, ranks: Sequence[RankBeat], now: float) -> None:
    """Add which ranks each host has, and how many steps all of them have counted."""
    steps: dict[str, int] = defaultdict(int)
    for beat in ranks:
        if beat.step is not None:
            steps[name_text(beat.host or "")] += beat.step
    for host, counted in steps.items():
        families.add_in_order(rank_metrics.TRAINING_HOST_RANK_STEPS, counted, (run_id, host))
    for each in ranks_by_host(ranks, now):
        labels = {"run_id": run_id, "host": name_text(each.host), "ranks": name_text(each.ranks)}
        families.add(rank_metrics.TRAINING_HOST_HEARTBEAT_TIMESTAMP_SECONDS, each.time, **labels)


def add_silent_ranks(families: Families, record: RunRecord, ranks: Sequence[RankBeat], now: float) -> None:
    """Add the ranks that have been silent for too long."""
    for each in silent_ranks(ranks, record.thresholds.stale_seconds, now):
        labels = {"run_id": record.run_id, "host": name_text(each.host), "ranks": name_text(each.ranks)}
        families.add(rank_metrics.TRAINING_SILENT_RANKS_TIMESTAMP_SECONDS, each.time, **labels)


def add_missing_ranks(families: Families, record: RunRecord) -> None:
    """Add the ranks that have not written anything yet."""
    if record.metadata and (missing := missing_ranks(record)):
        labels = {"ranks": name_text(rank_ranges(missing)), "world_size": str(record.metadata.world_size)}
        families.add(rank_metrics.TRAINING_MISSING_RANKS, len(missing), run_id=record.run_id, **labels)


def add_ages(
    families: Families, record: RunRecord, observed: float | None, now: float, s3_interval: float = 0.0
) -> None:
    """Add the ages of the heartbeats, unless the record was last confirmed too long ago.

    `observed` is when S3 last confirmed it, Unix seconds; None for a record in the runs folder. It is asked every
    `s3_interval` seconds.
    """
    run_id = record.run_id
    families.add_in_order(metrics.TRAINING_RUN_OBSERVED_TIMESTAMP_SECONDS, observed, (run_id,))
    if observed is not None and now - observed > max(UNCONFIRMED_SECONDS, UNCONFIRMED_INTERVALS * s3_interval):
        return
    progress = record.current_progress
    for source, time in (
        ("metadata", record.metadata.last_update if record.metadata else None),
        ("progress", progress.last_updated if progress else None),
    ):
        beat = plausible_timestamp(time, now)
        age = None if beat is None else max(0.0, now - beat)
        families.add_in_order(metrics.TRAINING_HEARTBEAT_AGE_SECONDS, age, (run_id, source))


def add_place(families: Families, run_id: str, place: S3Place | None) -> None:
    """Add where in S3 a record is; nothing for a record in the runs folder."""
    if place is not None:
        families.add(metrics.TRAINING_RUN_S3_INFO, 1, run_id=run_id, url=place.url, console=place.console)


def add_rivals(families: Families, run_id: str, rivals: Sequence[Superseded]) -> None:
    """Add the older attempts that still live beside the one that owns the record."""
    for each in rivals:
        labels = {"host": name_text(each.host or ""), "pid": "" if each.pid is None else str(each.pid)}
        families.add(metrics.TRAINING_SUPERSEDED_ATTEMPT_INFO, 1, run_id=run_id, attempt=str(each.attempt), **labels)


def add_expected(families: Families, record: RunRecord, sources: Mapping[str, float], now: float) -> None:
    """Add a run that is expected and has left no record."""
    add_settings(families, record)
    add_progress(families, record, StepTimes(None, None), now)
    for source in sources:
        families.add(metrics.TRAINING_RUN_EXPECTED, 1, run_id=record.run_id, source=label_text(source))


def add_reported(families: Families, run_id: str, progress: Progress | LogProgress) -> None:
    """Add the step, loss and rates that this attempt reported last, in its record or in its log."""
    labels = (run_id,)
    for field, metric in REPORTED.items():
        families.add_in_order(metric, getattr(progress, field), labels)


def _add_step_durations(families: Families, run_id: str, durations: StepDurations | None) -> None:
    if durations is None:
        return
    families.add(metrics.TRAINING_STEP_DURATIONS_OBSERVED, durations.count, run_id=run_id)
    for quantile, seconds in (("0.5", durations.p50), ("0.99", durations.p99), ("1", durations.max)):
        families.add(metrics.TRAINING_STEP_DURATION_SECONDS, seconds, run_id=run_id, quantile=quantile)


def add_ranks(families: Families, ranks: Sequence[RankBeat], labels: Sequence[tuple[str, str]], now: float) -> None:
    """Add what changes of the ranks while they train; `labels` are the run and the rank of each."""
    times = [plausible_timestamp(beat.time, now) for beat in ranks]
    families.add_each(rank_metrics.TRAINING_RANK_HEARTBEAT_TIMESTAMP_SECONDS, times, labels)
    families.add_each(rank_metrics.TRAINING_RANK_STEP, [beat.step for beat in ranks], labels)
    for rank, beat in zip(labels, ranks, strict=True):
        for name, seconds in beat.sections.items():
            families.add_in_order(rank_metrics.TRAINING_SECTION_SECONDS, seconds, (*rank, name))


def add_rank_place(families: Families, run_id: str, beat: RankBeat, process_state: str | None) -> None:
    """Add where a rank runs, who else used its GPU, and the state of its process, None where it is unknown."""
    rank = str(beat.rank)
    families.add(rank_metrics.TRAINING_RANK_GPU_TAKEN_BYTES, beat.gpu_taken_bytes, run_id=run_id, rank=rank)
    families.add(
        rank_metrics.TRAINING_RANK_INFO,
        1,
        run_id=run_id,
        rank=rank,
        host=name_text(beat.host or ""),
        gpu="" if beat.gpu is None else str(beat.gpu),
        uuid=name_text(beat.uuid or "", UUID_BYTES),
        pid="" if beat.pid is None else str(beat.pid),
    )
    if process_state is not None:
        families.add(rank_metrics.TRAINING_RANK_PROCESS_STATE, 1, run_id=run_id, rank=rank, state=process_state)


def add_verdict(families: Families, run_id: str, verdict: FailureVerdict, now: float) -> None:
    """Add the failure that ended the attempt."""
    families.add(
        metrics.TRAINING_FAILURE_INFO,
        1,
        run_id=run_id,
        attempt=verdict.attempt,
        error_type=label_text(verdict.error_type),
        failure=label_text(verdict.failure),
        subsystem=label_text(verdict.subsystem),
        severity=label_text(verdict.severity),
    )
    families.add(metrics.TRAINING_FAILURE_TIMESTAMP_SECONDS, plausible_timestamp(verdict.time, now), run_id=run_id)


def progress_line(record: RunRecord) -> str | None:
    """Return how far the attempt has come, for a run without a log, e.g. `step 1500/5000, loss 2.134`."""
    progress = record.current_progress
    if progress is None or progress.step is None:
        return None
    target = "" if progress.total_steps is None else f"/{progress.total_steps}"
    loss = "" if progress.loss is None or not math.isfinite(progress.loss) else f", loss {progress.loss:.4g}"
    return f"step {progress.step}{target}{loss}"


def add_failure_message(families: Families, run_id: str, message: str, last_line: str | None, hint: str) -> None:
    """Add the failure's message, the last line of the log and a hint; nothing if there is none of them."""
    if message or last_line or hint:
        families.add(
            metrics.TRAINING_FAILURE_MESSAGE_INFO,
            1,
            run_id=run_id,
            message=label_text(message),
            last_line=label_text(last_line or ""),
            hint=label_text(hint, HINT_BYTES),
        )


def add_log_progress(families: Families, record: RunRecord, view: LogView | None, now: float) -> None:
    """Add the progress in a run's logs where none is recorded."""
    if view is not None and view.progress is not None and not record.has_progress:
        _add_log_progress(families, record.run_id, view.progress)
        # Only that the loop moves. A log may be silent or buffered while the training works: no step time is derived.
        moved = plausible_timestamp(view.moved, now)
        families.add(metrics.TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS, moved, run_id=record.run_id)


def add_log_only(families: Families, run_id: str, view: LogView) -> None:
    """Add a run that has logs and no record; its state is not known."""
    if view.progress is not None:
        _add_log_progress(families, run_id, view.progress)
        families.add(metrics.TRAINING_STEP_CHANGE_TIMESTAMP_SECONDS, view.moved, run_id=run_id)


def _add_log_progress(families: Families, run_id: str, progress: LogProgress) -> None:
    add_reported(families, run_id, progress)
    families.add(metrics.TRAINING_STEPS_TARGET, progress.total_steps, run_id=run_id)
    families.add(metrics.TRAINING_STEP_HIGH_WATER, progress.high_water, run_id=run_id)


def _add_identity(families: Families, run_id: str, metadata: Metadata | None) -> None:
    # A label that is empty is a label that is absent.
    known = {label: name_text(getattr(metadata, label, None) or "") for label in _NAMES}
    known.update({label: label_text(getattr(metadata, label, None) or "") for label in _SHOWN})
    families.add(metrics.TRAINING_RUN_INFO, 1, run_id=run_id, **known)
    attempt = "" if metadata is None or metadata.attempt is None else str(metadata.attempt)
    families.add(
        metrics.TRAINING_ATTEMPT_INFO,
        1,
        run_id=run_id,
        attempt=attempt,
        job_id=known["job_id"],
        scheduler=known["scheduler"],
        node=known["host"],
        instance_id=known["instance_id"],
    )


def _add_phase(families: Families, run_id: str, metadata: Metadata) -> None:
    families.add(metrics.TRAINING_PHASE, 1, run_id=run_id, phase=metadata.phase or "train")
    families.add(metrics.TRAINING_PHASE_INFERRED, 1 if metadata.phase_source else None, run_id=run_id)


def _add_heartbeat(families: Families, run_id: str, source: str, time: float | None, now: float) -> None:
    beat = plausible_timestamp(time, now)
    families.add_in_order(metrics.TRAINING_HEARTBEAT_TIMESTAMP_SECONDS, beat, (run_id, source))


def _add_totals(families: Families, run_id: str, progress: Progress, now: float) -> None:
    """Add what counts across attempts."""
    labels = (run_id,)
    families.add_in_order(metrics.TRAINING_STEPS_TARGET, progress.total_steps, labels)
    families.add_in_order(metrics.TRAINING_STEPS_COMPLETED_TOTAL, progress.steps_completed, labels)
    families.add_in_order(metrics.TRAINING_STEP_HIGH_WATER, progress.high_water, labels)
    families.add_in_order(metrics.TRAINING_NONFINITE_TOTAL, progress.nonfinite, labels)
    families.add_in_order(metrics.TRAINING_CHECKPOINTS_TOTAL, progress.checkpoints_saved, labels)
    if progress.checkpoint:
        _add_checkpoint(families, run_id, progress.checkpoint, now)
    if verified := next((each for each in progress.checkpoints if each.verified_time is not None), None):
        families.add_in_order(metrics.TRAINING_CHECKPOINT_VERIFIED_STEP, verified.step, labels)


def _add_checkpoint(families: Families, run_id: str, checkpoint: Checkpoint, now: float) -> None:
    labels = (run_id,)
    families.add_in_order(metrics.TRAINING_CHECKPOINT_STEP, checkpoint.step, labels)
    families.add_in_order(
        metrics.TRAINING_CHECKPOINT_TIMESTAMP_SECONDS, plausible_timestamp(checkpoint.time, now), labels
    )
    families.add_in_order(metrics.TRAINING_CHECKPOINT_SIZE_BYTES, checkpoint.size_bytes, labels)
