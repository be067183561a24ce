"""What a process that runs a training from outside writes into the run's record.

The record belongs to the training. A process outside it writes only what the training cannot: that an attempt is about
to begin, that it died without recording its end, and, for a command that does not use the library, that it lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients.s3_location import InvalidLocation, records_location
from trainwarden.environment import instance_id, read_run_settings
from trainwarden.exec.printed_progress import InferredPhase, PrintedProgress
from trainwarden.identity import AttemptKey, host_name, world_size
from trainwarden.record.attempt import begin_attempt
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, PROGRESS
from trainwarden.record.metadata import VERSION, Attempt, Metadata, end_of_attempt, read_metadata
from trainwarden.record.ownership import RunRefused
from trainwarden.record.progress import Checkpoint, Progress, read_progress
from trainwarden.record.sentinels import RestartNotice, Sentinel, current_completion, current_error
from trainwarden.record.store import UNKNOWN_END, RecordStore
from trainwarden.record.thresholds import Thresholds
from trainwarden.taxonomy import FAILURES
from trainwarden.training.outcome import AttemptOutcome

if TYPE_CHECKING:
    from trainwarden.s3.startup import S3Startup

# Keys about the end of one attempt, or about its copy: not true of the next.
_OF_AN_ATTEMPT = (
    "end_time",
    "reason",
    "s3",
    "write_errors",
    "signals",
    "log_path",
    "policy",
    "phase_source",
    "checkpoint_trust",
    "resume",
)
# Keys of `progress.json` that hold across attempts.
_OF_THE_RUN = ("total_steps", "high_water", "steps_completed", "nonfinite", "checkpoint", "checkpoints")
_KEPT_CHECKPOINTS = 5
# `phase_source` of a phase that was inferred from what the command prints.
FROM_OUTPUT = "output"


class ExternalRecordWriter:
    """Writes the record of one attempt from outside the training.

    `announce` raises OSError. No other method does: on a full disk the record lacks something, and the command goes on.

    Args:
        store: of the run's record.
        key: of the attempt.
        thresholds: for a command that does not use the library; one that does writes its own.
        pid: of the process that stands for the command in the record; this one if None, 0 for none.
        printed: what the command prints: its steps and its phase are taken from there until it reports them itself.
        given: the stall budgets that were given, by phase.
        settings: fields of the metadata that hold for the attempt; None: those of this process's environment.
        silence: as of `InferredPhase`.
    """

    def __init__(
        self,
        store: RecordStore,
        key: AttemptKey,
        thresholds: Thresholds,
        *,
        pid: int | None = None,
        printed: PrintedProgress | None = None,
        given: Mapping[str, float] | None = None,
        settings: Mapping[str, Any] | None = None,
        silence: bool = False,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._settings = settings
        self._store = store
        self._key = key
        self._thresholds = thresholds
        self._printed = printed
        self._inferred = InferredPhase(printed, thresholds, given or {}, silence=silence)
        self._reports_itself = False
        self._start = time.time()
        self._written: dict[str, Any] = {}
        self._written_progress: dict[str, Any] = {}
        self.restarted: RestartNotice | None = None

    def announce(self, began: float | None = None) -> int:
        """Begin the attempt, pending; returns its number.

        Args:
            began: when it began, Unix seconds; now if None.

        Raises:
            OSError: the folder cannot be written.
        """
        now = self._start = time.time() if began is None else began
        self._store.make_folder()
        values = self._store.values(METADATA)
        start = begin_attempt(Path(self._store.folder), self._key, now)
        self.restarted = start.restarted
        number, key = start.this.attempt, str(self._key)
        if self._printed:
            before = read_progress(self._store.folder)
            self._printed.begin(before if isinstance(before, Progress) else None)
            # Of a command before in the same job, with the same key.
            self._written_progress = self._store.values(PROGRESS)
        # The entries of earlier attempts are kept as they are, with the keys of other tools.
        others = {attempt.attempt for attempt in start.attempts} - {number}
        attempts = [each for each in _objects(values.get("attempts")) if each.get("attempt") in others]
        kept = {name: value for name, value in values.items() if name not in _OF_AN_ATTEMPT}
        changes = Metadata(
            run_id=self._store.run_id,
            version=VERSION,
            status="pending",
            phase="init",
            last_update=now,
            attempt=number,
            attempt_key=key,
            attempt_start_time=now,
            phase_time=now,
            job_id=self._key.job_id,
            scheduler=self._key.scheduler,
            world_size=world_size() if self._settings is None else None,
            thresholds=self._thresholds,
            host=host_name(),
            instance_id=instance_id() or host_name(),
            pid=self._pid or None,
        ).replace(**(read_run_settings() if self._settings is None else self._settings))
        if "start_time" not in kept:
            changes = changes.replace(start_time=now)
        this = Attempt(number, key, now)
        self._write({**kept, "attempts": [*attempts, this.to_json()]}, changes)
        return number

    def go_on(self) -> bool:
        """Go on with the attempt where another process of this writer's kind has left it; False if it cannot."""
        metadata = self._metadata()
        if metadata is None or not metadata.is_live or (metadata.pid or 0) != self._pid:
            return False
        self._start = metadata.attempt_start_time or self._start
        self._written = self._store.values(METADATA)
        self._written_progress = self._store.values(PROGRESS)
        if self._printed:
            before = read_progress(self._store.folder)
            ours = isinstance(before, Progress) and before.attempt_key == str(self._key)
            self._printed.begin(before if isinstance(before, Progress) else None)
            first = metadata.attempts[-1].resume_step if metadata.attempts else None
            budget = metadata.thresholds.stall_seconds["train"]
            self._printed.go_on(before if ours and isinstance(before, Progress) else None, budget, first)
        return True

    @property
    def alone(self) -> bool:
        """Whether no other process has written about this attempt."""
        metadata = self._metadata()
        return metadata is not None and (metadata.pid or 0) == self._pid

    @property
    def open(self) -> bool:
        """Whether the record has no end of the attempt yet."""
        metadata = self._metadata()
        return metadata is not None and metadata.is_live

    @property
    def completed(self) -> bool:
        """Whether the attempt left its `_complete`."""
        return isinstance(current_completion(self._store.folder, str(self._key), self._start), Sentinel)

    def alive(self, status: str = "running") -> None:
        """Write that the command lives, where no other process writes, and the phase that it seems to be in.

        Args:
            status: "pending" as long as the command has not begun.
        """
        with contextlib.suppress(OSError), self._store.locked():
            metadata = read_metadata(self._store.folder)
            if metadata is None and self._written:
                # The folder was removed under the run.
                self._store.make_folder()
                self._write(self._written, Metadata())
            elif not self.alone or not self.open:
                return
            now = time.time()
            values = self._store.values(METADATA)
            changes = Metadata(status=status, last_update=now)
            if isinstance(metadata, Metadata):
                self._write(values, changes.replace(**self._phase(metadata, values, now)))
            else:
                self._write(values, changes)

    def read_output(self, *, over: bool = False) -> bool:
        """Write the last step that the command has printed; returns whether its phase has changed by that.

        Call it every second or so, from the thread that calls `alive`; with `over` once the command has ended.
        """
        if self._printed is None or self._reports_itself or not self._printed.read(over=over):
            return False
        before = self._written.get("phase")
        with contextlib.suppress(OSError), self._store.locked():
            metadata = self._metadata()
            if metadata is None or not metadata.is_live:
                return False
            if (metadata.pid or 0) != self._pid:
                self._stop_reading()
                return False
            values = self._store.values(PROGRESS)
            if self._notices_reports(values):
                return True
            progress = self._printed.progress(str(self._key), metadata.attempt)
            is_same = values.get("attempt_key") == str(self._key)
            kept = values if is_same else {name: value for name, value in values.items() if name in _OF_THE_RUN}
            self._written_progress = self._store.update(PROGRESS, kept, progress)
        return self._inferred.now() != before

    def checkpoint(self, newest: Checkpoint) -> bool:
        """Write which checkpoint was found that the command does not report itself; False where nothing is new.

        The record keeps the last few; those that are newer than it were damaged meanwhile.
        """
        with contextlib.suppress(OSError), self._store.locked():
            metadata, progress = self._metadata(), read_progress(self._store.folder)
            if metadata is None or not metadata.is_live or self._reports_itself:
                return False
            before = progress if isinstance(progress, Progress) else Progress()
            last = before.checkpoint
            if last is not None and (last.path, last.size_bytes) == (newest.path, newest.size_bytes):
                return False
            older = [
                each
                for each in before.known_checkpoints()
                if each.path != newest.path and (each.step or 0) <= (newest.step or 0)
            ]
            is_more = last is None or (newest.step or 0) > (last.step or 0)
            changes = Progress(
                checkpoint=newest,
                checkpoints=(newest, *older)[:_KEPT_CHECKPOINTS],
                checkpoints_saved=(before.checkpoints_saved or 0) + is_more,
            )
            self._store.update(PROGRESS, self._store.values(PROGRESS), changes)
            return True
        return False

    def _phase(self, metadata: Metadata, values: dict[str, Any], now: float) -> dict[str, Any]:
        """Return the fields that the command's phase changes: none once it reports that itself."""
        reports = any(values.get(name) != self._written.get(name) for name in ("phase", "phase_time"))
        if reports or self._reports_itself or self._notices_reports(self._store.values(PROGRESS)):
            self._stop_reading()
            if metadata.phase_source is None:
                return {}
            values.pop("phase_source")
            return {"thresholds": self._thresholds}
        phase, thresholds = self._inferred.now(), self._inferred.thresholds()
        changes: dict[str, Any] = {} if thresholds == metadata.thresholds else {"thresholds": thresholds}
        if phase != metadata.phase:
            changes |= {"phase": phase, "phase_time": now}
        elif (moved := self._inferred.moved()) is not None and moved > (metadata.phase_time or 0.0):
            changes["phase_time"] = moved
        if phase == "idle" or self._inferred.may_restart(phase):
            values.pop("phase_source", None)
        else:
            changes["phase_source"] = FROM_OUTPUT
        attempts = values.get("attempts")
        if self._printed and self._printed.first_step is not None and isinstance(attempts, list) and attempts:
            # Set in place, to keep the keys of other tools in it.
            attempts[-1].setdefault("resume_step", self._printed.first_step)
        return changes

    def _notices_reports(self, values: Mapping[str, Any]) -> bool:
        """Return whether the command has reported steps itself, with shell commands: then what it prints is ignored."""
        if values.get("attempt_key") == str(self._key):
            own = self._written_progress
            if any(values.get(name) != own.get(name) for name in ("step", "last_updated")):
                self._stop_reading()
        return self._reports_itself

    def _stop_reading(self) -> None:
        self._reports_itself = True
        if self._printed:
            self._printed.stop()

    def end(self, ending: AttemptOutcome, *, rank: int = 0) -> None:
        """Write how the attempt ended, where the training has not.

        A training that completed, in a command that then failed or was ended, has not succeeded: `ending` counts.
        """
        self.read_output(over=True)
        stepped = self._printed is not None and self._printed.first_step is not None and not self._reports_itself
        if stepped and self._inferred.now() != self._written.get("phase"):
            self.alive()  # the last lines have changed the phase in which it ended
        alone = self.alone
        with contextlib.suppress(OSError):
            error = current_error(self._store.folder, str(self._key), self._start)
            ended_by_user = ending.status == "cancelled" and not ending.has_unknown_sender
            if isinstance(error, Sentinel) and error.failure == UNKNOWN_END and ended_by_user:
                # The ranks cannot determine what ended them; this process can.
                self._store.withdraw(ERROR)
                self._finish("cancelled", ending.reason, anew=True)
            elif isinstance(error, Sentinel):
                self._finish("failed", error.message)
            elif self.completed:
                self._end_completed(ending, rank)
            elif not self.open:
                return
            elif ending.status == "cancelled":
                self._finish("cancelled", ending.reason)
            elif ending.status == "succeeded" and alone:
                self._store.record_completion(key=str(self._key), step=None)
                self._finish("succeeded", ending.reason)
            else:
                self._fail(ending, rank)

    def _end_completed(self, ending: AttemptOutcome, rank: int) -> None:
        if ending.status == "succeeded":
            self._finish("succeeded", None)
            return
        if ending.status == "failed":
            record_ending(self._store, self._key, ending, rank)
        self._store.withdraw(COMPLETE)
        self._finish(ending.status, ending.reason, anew=True)

    def _fail(self, ending: AttemptOutcome, rank: int) -> None:
        if ending.status == "succeeded":
            # A training that uses the library records that it has succeeded.
            ending = AttemptOutcome(
                "failed", "the command ended with status 0 and did not record its end", FAILURES["nonzero_exit"]
            )
        record_ending(self._store, self._key, ending, rank)
        self._finish("failed", ending.reason)

    def _finish(self, status: str, reason: str | None, *, anew: bool = False) -> None:
        with self._store.locked():
            if self.open or anew:
                self._write(self._store.values(METADATA), end_of_attempt(status, reason, time.time()))

    def _metadata(self) -> Metadata | None:
        """Return the metadata, if it is this attempt's."""
        metadata = read_metadata(self._store.folder)
        return metadata if isinstance(metadata, Metadata) and metadata.attempt_key == str(self._key) else None

    def _write(self, values: Mapping[str, Any], changes: Metadata) -> None:
        if self._store.has_copy:
            changes = changes.replace(s3=self._store.copy_state() or {})
        self._written = {**values, **changes.to_json()}
        self._store.update(METADATA, values, changes)


def record_ending(store: RecordStore, key: AttemptKey, ending: AttemptOutcome, rank: int) -> None:
    """Write the `_error` of an attempt that failed; the first writer wins.

    Raises:
        OSError: the folder cannot be written.
    """
    store.record_failure(
        key=str(key),
        failure=ending.failure or FAILURES["nonzero_exit"],
        message=ending.reason or "",
        rank=rank,
        exception_type=ending.exception_type,
        traceback=ending.traceback,
        exit_code=ending.exit_code,
    )


def s3_startup(
    environ: Mapping[str, str], folder: Path, key: AttemptKey, start: float, *, rank: int
) -> S3Startup | None:
    """Return the start of an attempt's copy in S3, if the environment asks for a copy there.

    Raises:
        RunRefused: the place that it names is none in S3, or cannot be used.
    """
    try:
        place = records_location(None, environ)
    except InvalidLocation as error:
        raise RunRefused(str(error)) from None
    if place is None:
        return None
    # It loads much that a record in a folder alone does not need.
    from trainwarden.s3.startup import S3Startup  # noqa: PLC0415

    return S3Startup(place.below(folder.name), folder, key, start, whole=rank == 0)


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
