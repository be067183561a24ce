"""The files of a run's record, kept up to date by one thread."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict

from trainwarden.record.clock import to_iso
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, METADATA, PROGRESS, RANKS, SUMMARY
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Checkpoint
from trainwarden.record.rank import rank_file
from trainwarden.record.sentinels import Sentinel, attempt_number, current_error
from trainwarden.record.store import RecordStore
from trainwarden.training.checkpoints import SavedCheckpoints
from trainwarden.training.context import AttemptState, RunContext
from trainwarden.training.event_log import EventLog
from trainwarden.training.events import RunEvent
from trainwarden.training.gpu_memory import GpuMemory
from trainwarden.training.loop import LoopState, Throughput
from trainwarden.training.outcome import AttemptOutcome, reconcile
from trainwarden.training.summary import AttemptSummary, errors_of_others, summary

PROGRESS_SECONDS = 0.5
LIVENESS_SECONDS = 5.0
GPU_EVENT_SECONDS = 60.0
_LAST_TRIES = 3
# What is left of an end's time for the record here to say how the copy fared.
_MARGIN_SECONDS = 1.0
# How long an end waits for what ranks on other nodes left in the copy.
_LOOK_SECONDS = 2.0
_NEVER = float("-inf")

logger = logging.getLogger("trainwarden")


class Writer:
    """What the loop said when it moved, liveness every 5 s, what happened in between, and all of it at the end.

    Args:
        subject: whose record it is.
        loop: what the training loop said.
        event_log: what happened.
        store: where to.
        gpu_memory: of the GPU that the process trains on.
        phase: the name of the phase and since when, Unix seconds.
    """

    def __init__(
        self,
        subject: RunContext,
        loop: LoopState,
        event_log: EventLog,
        store: RecordStore,
        *,
        gpu_memory: GpuMemory,
        phase: Callable[[], tuple[str, float]],
    ) -> None:
        self.subject = subject
        self.write_errors = 0
        self._loop = loop
        self._event_log = event_log
        self._store = store
        self._gpu_memory = gpu_memory
        self._phase = phase
        self._ended: AttemptOutcome | None = None
        self._end_time: float | None = None
        # Clocks are set; how long something took is measured on one that is not.
        self._monotonic_start = time.monotonic() - max(0.0, time.time() - subject.start)
        self._throughput = Throughput()
        beginning = subject.beginning
        self._checkpoints = SavedCheckpoints(*(beginning.checkpoints, beginning.checkpoints_saved) if beginning else ())
        self._written_state: AttemptState | None = None
        self._written_reports = 0
        self._progress_time = self._beat_time = self._gpu_time = _NEVER
        self._told_phase = phase()
        self._checkpoint_is_new = False
        self._superseded = False
        # What of the last word could not be written, and the last reason for that.
        self._lost: list[str] = []
        self._problem: Exception | None = None

    def open(self) -> None:
        """Write the record for the first time.

        Raises:
            OSError: the folder cannot be written.
        """
        (self.subject.folder / RANKS).mkdir(exist_ok=True)
        self._write_beat()
        self._event_log.add_now("training_started", self.subject.start_data(), required=True)
        beginning = self.subject.beginning
        if beginning and beginning.lost:
            lost = asdict(beginning.lost)
            last = lost.pop("last_update")
            data = {"attempt_key": lost.pop("key"), "last_update": None if last is None else to_iso(last), **lost}
            self._event_log.add_now("attempt_lost", data, required=True)

    def write_what_is_due(self) -> None:
        """Write what has changed, and what has not been written for long."""
        self._tell_events()
        now = time.monotonic()
        if self._state() != self._written_state or now - self._beat_time >= LIVENESS_SECONDS:
            self.guarded(self._write_beat)
        if now - self._progress_time >= PROGRESS_SECONDS:
            self.guarded(self._write_progress)
        self.guarded(self._write_journals)

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint that was saved; it is written through to the disk with the next progress."""
        self._checkpoints.add(checkpoint)
        self._checkpoint_is_new, self._progress_time = True, _NEVER
        named = {"path": checkpoint.path, "step": checkpoint.step, "size_bytes": checkpoint.size_bytes}
        self._event_log.add_now("checkpoint_saved", named)

    def correct_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take the size of a checkpoint that was found late."""
        self._checkpoints.correct(checkpoint)
        self._checkpoint_is_new, self._progress_time = True, _NEVER

    def end(self, seen: AttemptOutcome, deadline: float) -> None:
        """Write the last word, and let the copy finish until `deadline`, on the monotonic clock."""
        subject = self.subject
        end_time = self._end_time = time.time()
        if (subject.world_size or 1) > 1:
            # It may be why this rank was told to end.
            self._store.fetch_error(_LOOK_SECONDS)
        ending = self._ended = reconcile(seen, subject.folder, str(subject.key), subject.rank, subject.start)
        if ending.status == "failed" and ending.failure is not None:
            self._insist(ERROR, lambda: self._write_error(ending))
        self._insist(PROGRESS, self._write_progress)
        self._insist(METADATA, self._write_beat)
        if ending.status == "succeeded" and subject.beginning is not None and not self._superseded:
            self._insist(COMPLETE, self._write_completion)
        outcome = self._outcome(ending, end_time)
        self._tell_events()
        if ending.status == "failed":
            self._event_log.add_failure(ending, end_time)
        self._event_log.add(RunEvent(end_time, "training_completed", outcome.completion()), required=True)
        self._insist("the journals", self._write_journals)
        if subject.beginning is not None and not self._superseded:
            self._insist(SUMMARY, lambda: self._write_summary(outcome))
        self._finish_copy(deadline)
        self._say_what_is_lost(ending)

    def guarded(self, write: Callable[[], None]) -> bool:
        """Whether `write()` worked; what it raised is counted."""
        try:
            write()
        except Exception as error:  # noqa: BLE001  # the thread outlives whatever goes wrong in it
            self.write_errors += 1
            self._problem = error
            level = logging.WARNING if self.write_errors == 1 else logging.DEBUG
            logger.log(level, "the run record in %s could not be written: %s", self.subject.folder, error)
            return False
        return True

    def _insist(self, name: str, write: Callable[[], None]) -> None:
        # The last word has no next time.
        for attempt in range(_LAST_TRIES):
            if self.guarded(write):
                return
            time.sleep(0.1 * 2**attempt)
        self._lost.append(name)

    def _say_what_is_lost(self, ending: AttemptOutcome) -> None:
        if self._lost:
            logger.error(
                "the end of the run could not be recorded in %s: lost are status %s, step %s (%s)%s: %s",
                self.subject.folder,
                ending.status,
                self._loop.step,
                ", ".join(self._lost),
                "; it goes on saying running" if METADATA in self._lost else "",
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

    def _tell_events(self) -> None:
        phase, since = self._phase()
        before, before_since = self._told_phase
        if phase != before:
            self._told_phase = (phase, since)
            seconds = round(max(0.0, since - before_since), 3)
            data = {"phase": phase, "before": before, "seconds": seconds}
            self._event_log.add(RunEvent(since, "phase_changed", data))
        sample, now = self._gpu_memory.stats.last, time.monotonic()
        if sample is not None and now - self._gpu_time >= GPU_EVENT_SECONDS:
            self._gpu_time = now
            self._event_log.add_now("gpu_stats", sample.as_json())

    def _write_beat(self) -> None:
        if self._has_a_successor():
            return
        subject, state, now = self.subject, self._state(), time.time()
        if subject.beginning is not None:
            metadata = subject.metadata(
                subject.beginning,
                state,
                now,
                write_errors=self.write_errors,
                lines_dropped=self._event_log.dropped,
                copy_state=self._store.copy_state(),
            )
            self._store.write(METADATA, metadata, durable=state.end_time is not None)
        self._store.write(rank_file(subject.rank), subject.rank_beat(state, self._loop.step, now))
        self._written_state, self._beat_time = state, time.monotonic()

    def _write_progress(self) -> None:
        beginning, view = self.subject.beginning, self._loop.snapshot()
        moved = view.reports != self._written_reports or self._checkpoint_is_new
        if beginning is None or not moved or self._has_a_successor():
            return
        # When the loop said it, on the clock that is never set.
        now = time.monotonic()
        said_time = min(now, now - (time.time() - (view.last_updated or 0.0)))
        rates = self._throughput.add(said_time, view.tokens, view.samples)
        saved = self._checkpoints
        document = self.subject.progress(beginning, view, rates, saved.latest, saved.count)
        # After a loss of power the newest checkpoint must still be known, whatever became of later reports.
        self._store.write(PROGRESS, document, durable=self._checkpoint_is_new)
        if self._checkpoint_is_new:
            self._store.write(CHECKPOINTED, document, durable=True)
        self._written_reports, self._checkpoint_is_new = view.reports, False
        self._progress_time = time.monotonic()

    def _write_journals(self) -> None:
        for name in self._event_log.flush(only_errors=self._superseded):
            self._store.put_file(name)

    def _has_a_successor(self) -> bool:
        """Whether a newer attempt owns the record: then nothing more is ours to say."""
        metadata = read_metadata(self.subject.folder)
        if isinstance(metadata, Metadata) and metadata.attempt_key != str(self.subject.key):
            ours = attempt_number(metadata, str(self.subject.key))
            self._superseded = ours is not None and metadata.attempt is not None and metadata.attempt > ours
        return self._superseded

    def _write_error(self, ending: AttemptOutcome) -> None:
        if ending.failure is None:
            return
        self._store.record_failure(
            key=str(self.subject.key),
            failure=ending.failure,
            message=ending.reason or "",
            rank=self.subject.rank,
            exception_type=ending.exception_type,
            traceback=ending.traceback,
            exit_code=ending.exit_code,
        )

    def _write_completion(self) -> None:
        self._store.record_completion(key=str(self.subject.key), step=self._loop.step)

    def _outcome(self, ending: AttemptOutcome, end_time: float) -> AttemptSummary:
        view, latest = self._loop.snapshot(), self._checkpoints.latest
        return AttemptSummary(
            status=ending.status,
            reason=ending.reason,
            end_time=end_time,
            duration_seconds=time.monotonic() - self._monotonic_start,
            steps_completed=view.steps_completed,
            epochs_completed=self._event_log.epochs_completed(succeeded=ending.status == "succeeded"),
            final_metric=view.final_metric,
            checkpoint_path=latest[0].path if latest else None,
        )

    def _write_summary(self, outcome: AttemptSummary) -> None:
        subject = self.subject
        errors = [*self._event_log.recent_errors(), *errors_of_others(subject.folder, str(subject.key))]
        self._store.write(SUMMARY, summary(subject, outcome, errors, self._gpu_memory.stats.as_json()))

    def _finish_copy(self, deadline: float) -> None:
        subject, store = self.subject, self._store
        if not store.has_copy:
            return
        error = current_error(subject.folder, str(subject.key), subject.start)
        if isinstance(error, Sentinel) and not self._superseded:
            # It may be another rank's, which was first.
            store.put_file(ERROR)
        if not store.close(max(0.0, deadline - time.monotonic() - _MARGIN_SECONDS)):
            state = store.copy_state() or {}
            logger.warning(
                "the copy of the run record in %s could not be finished in time (last error: %s); the record is in %s",
                state.get("url"),
                state.get("last_error") or "none, no answer",
                subject.folder,
            )
        self.guarded(self._write_beat)
