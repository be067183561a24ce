"""The files of a run's record, written by one thread."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from trainwarden.record.clock import to_iso
from trainwarden.record.folder import (
    COMPLETE,
    ERROR,
    LIVENESS_SECONDS,
    METADATA,
    PROGRESS,
    RANKS,
    SUMMARY,
)
from trainwarden.record.ownership import Owner
from trainwarden.record.progress import Checkpoint
from trainwarden.record.rank import remove_old_hosts
from trainwarden.record.sentinels import Sentinel, current_error
from trainwarden.record.store import UNKNOWN_END, RecordStore
from trainwarden.training.context import AttemptState, RunContext
from trainwarden.training.event_log import EventLog
from trainwarden.training.events import RunEvent
from trainwarden.training.fence import Fence
from trainwarden.training.gpu_memory import GpuMemory
from trainwarden.training.loop import LoopState, finite
from trainwarden.training.node_folder import NodeFolder
from trainwarden.training.outcome import AttemptOutcome, OtherRanks, reconcile
from trainwarden.training.progress_publisher import ProgressPublisher
from trainwarden.training.rank_publisher import RankPublisher
from trainwarden.training.sections import SectionMeans
from trainwarden.training.summary import AttemptResult, errors_of_others, summary, summary_file

GPU_EVENT_SECONDS = 60.0
_END_TRIES = 3
# Reserved at the end to write the state of the copy into the record.
_MARGIN_SECONDS = 1.0
# How long the end waits for the error of a rank on another node, from the copy or in the folder.
_ERROR_SECONDS = 2.0
_NEVER = float("-inf")

logger = logging.getLogger("trainwarden")


class RecordWriter:
    """Writes the progress when the loop has moved, a heartbeat every 5 s, events, and everything at the end.

    Args:
        context: of the run.
        loop: the reported state of the training loop.
        event_log: the events and errors.
        store: of the record.
        gpu_memory: of the GPU that the process trains on.
        phase: returns the name of the phase and its start, Unix seconds.
        lost_to: returns the other owner of the record, if this process has lost it.
    """

    def __init__(
        self,
        context: RunContext,
        loop: LoopState,
        event_log: EventLog,
        store: RecordStore,
        *,
        gpu_memory: GpuMemory,
        phase: Callable[[], tuple[str, float]],
        lost_to: Callable[[], Owner | None],
    ) -> None:
        self.context = context
        self.write_errors = 0
        self._loop = loop
        self._event_log = event_log
        self._store = store
        self._gpu_memory = gpu_memory
        self._phase = phase
        self._lost_to = lost_to
        self._fence = Fence(context, loop)
        node = NodeFolder(context.folder, str(context.key))
        self._rank = RankPublisher(store, str(context.key), node, self._fence.is_closed)
        self._ended: AttemptOutcome | None = None
        self._end_time: float | None = None
        # Durations are measured by the monotonic clock: the system clock may be set.
        self._monotonic_start = time.monotonic() - max(0.0, time.time() - context.start)
        self._progress = ProgressPublisher(context, loop, event_log, store, self._fence, self._monotonic_start)
        self._sections = SectionMeans()
        self._written_state: AttemptState | None = None
        self._rank_state: AttemptState | None = None
        # Rank 0 does it for all.
        self._has_removed_old = context.beginning is None
        self._metadata_time = self._gpu_time = _NEVER
        self._reported_phase = phase()
        self._has_noted_gpu = False
        # Another process owns the record of this attempt, too: nothing more may be written for it.
        self._is_lost = False
        # The files that could not be written at the end, and the last reason.
        self._lost: list[str] = []
        self._problem: Exception | None = None

    @property
    def outcome(self) -> AttemptOutcome | None:
        """How the attempt ended, once that is decided."""
        return self._ended

    def expect(self, total_steps: int) -> None:
        """Set the total number of steps."""
        self.context = self._progress.context = replace(self.context, total_steps=total_steps)

    def open(self) -> None:
        """Write the record for the first time.

        Raises:
            OSError: the folder cannot be written.
        """
        (self.context.folder / RANKS).mkdir(exist_ok=True)
        self._write_metadata()
        self._publish_rank()
        self._event_log.add_now("training_started", self.context.start_data(), required=True)
        beginning = self.context.beginning
        if beginning and beginning.lost:
            lost = asdict(beginning.lost)
            last = lost.pop("last_update")
            data = {"attempt_key": lost.pop("key"), "last_update": None if last is None else to_iso(last), **lost}
            self._event_log.add_now("attempt_lost", data, required=True)
        if beginning and (notice := beginning.restarted):
            restarted = {"attempt_key": notice.attempt_key, "action": "restart"}
            restarted |= {"incident": notice.intent or "", "reason": notice.reason or ""}
            self._event_log.add_now("attempt_restarted", restarted, required=True)
            # At this level also where the training has set up no logging: it belongs into the output of the job.
            logger.warning("%s", notice)

    def write_what_is_due(self) -> None:
        """Write what has changed, and the heartbeat if it is due."""
        self._add_events()
        now = time.monotonic()
        if self._state() != self._written_state or now - self._metadata_time >= LIVENESS_SECONDS:
            self.guarded(self._write_metadata)
        self.guarded(self._write_rank)
        if not self._has_removed_old:
            self._has_removed_old = True
            self.guarded(self._remove_old_hosts)
        if self._progress.is_due:
            self.guarded(self._progress.write)
        self.guarded(self._write_journals)
        if self._fence.is_due(now):
            self.guarded(partial(self._fence.write, "running"))

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a saved checkpoint; it is synced to the disk with the next progress.

        One that is saved after a newer attempt began is none of the run: it is named, so that none resumes from it.
        """
        if self._fence.is_closed():
            self._fence.keep_out(checkpoint)
            return
        self._progress.add_checkpoint(checkpoint)
        named = {"path": checkpoint.path, "step": checkpoint.step, "size_bytes": checkpoint.size_bytes}
        self._event_log.add_now("checkpoint_saved", named)

    def correct_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Set the size of a checkpoint that was measured late."""
        self._progress.correct_checkpoint(checkpoint)

    def verified_checkpoint(self, path: str, begun: float, ended: float) -> None:
        """Set that a checkpoint was verified, as `SavedCheckpoints.verified`."""
        self._progress.verified_checkpoint(path, begun, ended)

    def end(self, inferred: AttemptOutcome, deadline: float) -> None:
        """Write the end of the run, and let the copy finish until `deadline`, by the monotonic clock."""
        context = self.context
        end_time = self._end_time = time.time()
        if (context.world_size or 1) > 1:
            # Another rank's failure may be the reason for this end.
            self._store.fetch_error(_ERROR_SECONDS)
        outcome = self._ended = reconcile(
            inferred,
            context.folder,
            str(context.key),
            context.rank,
            context.start,
            world_size=context.world_size,
        )
        if outcome.status == "failed" and outcome.failure is not None and not self._is_lost:
            self._write_with_retries(ERROR, lambda: self._write_error(outcome))
        self._write_with_retries(PROGRESS, partial(self._progress.write, last=True))
        self._write_with_retries(METADATA, self._write_metadata)
        self._write_with_retries(RANKS, self._publish_rank)
        if outcome.failure is not None and outcome.failure.slug == UNKNOWN_END:
            # Written first: some launchers kill a second after SIGTERM.
            outcome = self._with_late_cause(outcome)
        if outcome.status == "succeeded" and context.beginning is not None and not self._fence.closed:
            self._write_with_retries(COMPLETE, self._write_completion)
        result = self._summarize(outcome, end_time)
        self._add_events()
        if outcome.status == "failed":
            self._event_log.add_failure(outcome, end_time)
        self._event_log.add(RunEvent(end_time, "training_completed", result.completion()), required=True)
        self._write_with_retries("the journals", self._write_journals)
        if context.beginning is not None and not self._fence.closed:
            self._write_with_retries(SUMMARY, lambda: self._write_summary(result))
        if self._fence.closed:
            self.guarded(partial(self._fence.write, "ended"))
        self._finish_copy(deadline)
        self._log_losses(outcome)

    def _with_late_cause(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the failure of a rank on another host if it appears in time, written; else `outcome`."""
        context = self.context
        others = OtherRanks(context.folder, str(context.key), context.rank, context.start)
        cause = others.await_failure("SIGTERM", _ERROR_SECONDS)
        if cause is None:
            return outcome
        self._ended = cause
        if cause.failure is not None:
            self._write_with_retries(ERROR, lambda: self._write_error(cause))
        self._write_with_retries(METADATA, self._write_metadata)
        self._write_with_retries(RANKS, self._publish_rank)
        return cause

    def guarded(self, write: Callable[[], None]) -> bool:
        """Call `write`, count and log its exception, and return whether it succeeded."""
        try:
            write()
        except Exception as error:  # noqa: BLE001  # the thread must survive whatever goes wrong in it
            self._count_error(error)
            return False
        return True

    def _count_error(self, error: Exception) -> None:
        self.write_errors += 1
        self._problem = error
        level = logging.WARNING if self.write_errors == 1 else logging.DEBUG
        # A process that is out of memory cannot log it either.
        with contextlib.suppress(MemoryError):
            logger.log(level, "the run record in %s could not be written: %s", self.context.folder, error)

    def _write_with_retries(self, name: str, write: Callable[[], None]) -> None:
        for attempt in range(_END_TRIES):
            if self.guarded(write):
                return
            time.sleep(0.1 * 2**attempt)
        self._lost.append(name)

    def _log_losses(self, outcome: AttemptOutcome) -> None:
        if self._lost:
            logger.error(
                "the end of the run could not be recorded in %s: lost are status %s, step %s (%s)%s: %s",
                self.context.folder,
                outcome.status,
                self._loop.step,
                ", ".join(self._lost),
                "; its status stays running" if METADATA in self._lost else "",
                self._problem,
            )

    def _state(self) -> AttemptState:
        phase, since = self._phase()
        ended = self._ended
        if ended is None:
            return AttemptState(phase, since, first_step=self._loop.first_step)
        if ended.status == "succeeded":
            phase, since = "done", self._end_time or since
        return AttemptState(phase, since, ended.status, ended.reason, self._end_time, self._loop.first_step)

    def _add_events(self) -> None:
        phase, since = self._phase()
        phase_before, since_before = self._reported_phase
        if phase != phase_before:
            self._reported_phase = (phase, since)
            seconds = round(max(0.0, since - since_before), 3)
            data = {"phase": phase, "before": phase_before, "seconds": seconds}
            self._event_log.add(RunEvent(since, "phase_changed", data))
        before = self._gpu_memory.before
        if before is not None and not before.is_healthy and not self._has_noted_gpu:
            self._has_noted_gpu = True
            self._event_log.add_now("gpu_unhealthy", self._gpu_memory.unhealthy_data())
        sample, now = self._gpu_memory.stats.last, time.monotonic()
        if sample is not None and now - self._gpu_time >= GPU_EVENT_SECONDS:
            self._gpu_time = now
            self._event_log.add_now("gpu_stats", sample.as_json())

    def _write_metadata(self) -> None:
        if not self._fence.closed and (owner := self._lost_to()):
            self._is_lost = owner.attempt_key == str(self.context.key)
            self._fence.close(str(owner))
        context, state = self.context, self._state()
        if context.beginning is not None and not self._fence.is_closed():
            metadata = context.metadata(
                context.beginning,
                state,
                time.time(),
                write_errors=self.write_errors,
                lines_dropped=self._event_log.dropped,
                copy_state=self._store.copy_state(),
                device=self._gpu_memory.device,
            )
            self._store.write(METADATA, metadata, durable=state.end_time is not None)
        self._written_state, self._metadata_time = state, time.monotonic()

    def _write_rank(self) -> None:
        if self._fence.closed:
            return
        if self._rank.is_due or self._state() != self._rank_state:
            self._write_beat()
        self._rank.publish_what_is_due()

    def _publish_rank(self) -> None:
        if not self._fence.closed:
            self._write_beat()
            self._rank.publish()

    def _write_beat(self) -> None:
        self._rank_state = self._state()
        sections = self._sections.add(time.monotonic(), *self._loop.section_totals())
        now, gpu = time.time(), self._gpu_memory
        beat = self.context.rank_beat(self._rank_state, self._loop.step, now, gpu.device, gpu.before, sections)
        self._rank.write(beat)

    def _remove_old_hosts(self) -> None:
        remove_old_hosts(self.context.folder, str(self.context.key), time.time())

    def _write_journals(self) -> None:
        if self._is_lost:
            return
        for name in self._event_log.flush(only_errors=self._fence.closed):
            self._store.put_file(name)

    def _write_error(self, outcome: AttemptOutcome) -> None:
        if outcome.failure is None:
            return
        self._store.record_failure(
            key=str(self.context.key),
            failure=outcome.failure,
            message=outcome.reason or "",
            rank=self.context.rank if outcome.rank is None else outcome.rank,
            exception_type=outcome.exception_type,
            traceback=outcome.traceback,
            exit_code=outcome.exit_code,
            host=outcome.host,
        )

    def _write_completion(self) -> None:
        self._store.record_completion(key=str(self.context.key), step=self._loop.step)

    def _summarize(self, outcome: AttemptOutcome, end_time: float) -> AttemptResult:
        view, latest = self._loop.snapshot(), self._progress.latest_checkpoint
        seconds = time.monotonic() - self._monotonic_start
        return AttemptResult(
            status=outcome.status,
            reason=outcome.reason,
            failure=outcome.failure.slug if outcome.failure else None,
            end_time=end_time,
            duration_seconds=seconds,
            steps_completed=view.steps_completed,
            epochs_completed=self._event_log.epochs_completed(succeeded=outcome.status == "succeeded"),
            final_metric=view.final_metric,
            checkpoint_path=latest.path if latest else None,
            first_step=view.first_step,
            final_step=view.step,
            final_loss=finite(view.loss),
            tokens_per_second=_rate(view.tokens, seconds),
            samples_per_second=_rate(view.samples, seconds),
        )

    def _write_summary(self, result: AttemptResult) -> None:
        context = self.context
        errors = [*self._event_log.recent_errors(), *errors_of_others(context.folder, str(context.key))]
        document = summary(context, result, errors, self._gpu_memory.stats.as_json())
        self._store.write(SUMMARY, document)
        # The next attempt replaces the first.
        self._store.write(summary_file(document.attempt or 0), document)

    def _finish_copy(self, deadline: float) -> None:
        context, store = self.context, self._store
        if not store.has_copy:
            return
        error = current_error(context.folder, str(context.key), context.start)
        if isinstance(error, Sentinel) and not self._fence.closed:
            # It may be that of another rank, which failed first.
            store.put_file(ERROR)
        if not store.close(max(0.0, deadline - time.monotonic() - _MARGIN_SECONDS)):
            state = store.copy_state() or {}
            logger.warning(
                "the copy of the run record in %s could not be finished in time (last error: %s); the record is in %s",
                state.get("url"),
                state.get("last_error") or "none, no answer",
                context.folder,
            )
        self.guarded(self._write_metadata)


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else finite(round(count / seconds, 3))
