"""One run's folder, read in each sample: the record as its files are now, and what earlier samples saw."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from trainwarden.record.crash import crash_error
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import COMPLETE, ERROR, LOG, METADATA, PROGRESS, RANKS
from trainwarden.record.metadata import read_metadata
from trainwarden.record.progress import read_progress
from trainwarden.record.rank import read_ranks
from trainwarden.record.sentinels import current_completion, current_error
from trainwarden.record.store import UNKNOWN_END
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.problems import UNEXPECTED, UNREADABLE, RecordProblem
from trainwarden_exporter.collectors.runs.record import (
    EXPIRY_SECONDS,
    FailureVerdict,
    RunRecord,
    StepHistory,
    StepTimes,
    failure_verdict,
    is_quiet,
    observe_step,
    plausible_timestamp,
)
from trainwarden_exporter.core.files import CachedFile, last_line
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.sentinels import Sentinel
    from trainwarden_exporter.core.metric import CachedSamples

T = TypeVar("T")

MAX_RANKS = 16384
# When the last line of a log is shown: while the attempt failed or is quiet, always, never.
LAST_LINE = NEEDED, ALWAYS, NEVER = "needed", "always", "never"
# Each other line makes a new series, so it is read again when the state changes, and otherwise only after:
LAST_LINE_SECONDS = 60.0
# A folder that was not written to for so long belongs to a run that is over, however far off its writer's clock is.
ABANDONED_SECONDS = 3 * EXPIRY_SECONDS


@dataclass(frozen=True)
class _Files:
    """The contents of a record's files."""

    modified: float
    metadata: Metadata | Unreadable | None
    progress: Progress | Unreadable | None
    ranks: list[RankBeat | Unreadable] | Unreadable | None
    error: Sentinel | Unreadable | None
    completion: Sentinel | Unreadable | None

    def is_same(self, other: _Files) -> bool:
        """Return whether both have the same objects; errors may be equal, as a crash is inferred each time."""
        return (
            self.modified == other.modified
            and self.metadata is other.metadata
            and self.progress is other.progress
            and self.ranks is other.ranks
            and self.completion is other.completion
            and (self.error is other.error or self.error == other.error)
        )


@dataclass(frozen=True)
class _LogLine:
    """The last line of a log, in which state and attempt it was read, and when."""

    state: tuple[str | None, str | None]
    time: float
    text: str | None


class RunFolder:
    """The state of one run.

    Args:
        path: the run's folder.
        defaults: thresholds of a record that states none.
        last_line: when the last line of its log is shown: NEEDED, ALWAYS or NEVER.

    Attributes:
        problems: those of the last sample.
        asleep_until: the folder has expired and is not read before then, Unix seconds.
        shown: the record as it was exported last.
        observed: when the record was last confirmed in S3, Unix seconds; None for a record in the runs folder.
        cached: the samples that were made from the record.
        last_line: of its log, where it is to be shown.
    """

    def __init__(self, path: Path, defaults: Thresholds, last_line: str = NEEDED) -> None:
        self.run_id = path.name
        self.problems: list[RecordProblem] = []
        self.asleep_until = 0.0
        self.shown: RunRecord | None = None
        self.observed: float | None = None
        self.last_line: str | None = None
        self._path = path
        self._defaults = defaults
        self._show_last_line = last_line
        self._line: _LogLine | None = None
        self._metadata = CachedFile(path / METADATA, lambda: read_metadata(path))
        self._progress = CachedFile(path / PROGRESS, lambda: read_progress(path))
        self._error = CachedFile(path / ERROR, partial(current_error, path))
        self._completion = CachedFile(path / COMPLETE, partial(current_completion, path))
        self._ranks = CachedFile(path / RANKS, lambda: _read_ranks(path))
        self._steps_seen: StepHistory | None = None
        self._files: _Files | None = None
        self._built = self._raw = self._localized = RunRecord(self.run_id, 0.0, defaults)
        self.cached: CachedSamples | None = None
        self._verdict: tuple[str | None, FailureVerdict] | None = None

    def read(self, now: float) -> RunRecord:
        """Return the record as its files are now; raise `OSError` if the folder is gone or cannot be read."""
        raw = self._record(now)
        if raw is not self._raw:
            self._raw, self._localized = raw, self.localized(raw)
        record = self._localized
        self._steps_seen = observe_step(self._steps_seen, record, now)
        self._read_last_line(record, now)
        return record

    def _read_last_line(self, record: RunRecord, now: float) -> None:
        needed = record.state == "failed" or is_quiet(record, self.steps(record, now).advanced, now)
        if self._show_last_line == NEVER or not (needed or self._show_last_line == ALWAYS):
            self.last_line = None
            return
        state = (record.state, record.attempt_key)
        if self._line is None or self._line.state != state or abs(now - self._line.time) >= LAST_LINE_SECONDS:
            enter(LOG)
            self._line = _LogLine(state, now, last_line(self._path / LOG))
        self.last_line = self._line.text

    def is_abandoned(self, now: float) -> bool:
        """Return whether nothing was written for `ABANDONED_SECONDS`; raise `OSError` as `read`."""
        if now - self._modified() < ABANDONED_SECONDS:
            return False
        times = []
        for name in (METADATA, PROGRESS, RANKS):
            with contextlib.suppress(FileNotFoundError):
                times.append(os.lstat(self._path / name).st_mtime)
        return now - max(times, default=0.0) > ABANDONED_SECONDS

    def to_local_time(self, stated: float | None, metadata: Metadata | None) -> float | None:  # noqa: ARG002  # for copies
        """Return a time that the writer stated by this host's clock."""
        return stated

    def localized(self, record: RunRecord) -> RunRecord:
        """Return the record by this host's clock."""
        return record

    def _modified(self) -> float:
        enter("stat")
        try:
            status = self._path.stat()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise FileNotFoundError(errno.ELOOP, "is a link that leads to itself", str(self._path)) from error
        if not stat.S_ISDIR(status.st_mode):
            raise FileNotFoundError(errno.ENOTDIR, "is no folder", str(self._path))
        return status.st_mtime

    def _record(self, now: float) -> RunRecord:
        modified = self._modified()
        enter(METADATA)
        metadata = self._metadata.get(now)
        enter(PROGRESS)
        progress = self._progress.get(now)
        enter(RANKS)
        ranks = self._ranks.get(now)
        error, completion = None, None
        # Without readable metadata the attempt is unknown that a sentinel has to match.
        if not isinstance(metadata, Unreadable):
            key = metadata.attempt_key if metadata else None
            stated = (metadata.attempt_start_time or metadata.start_time) if metadata else None
            start = self.to_local_time(stated, metadata)
            enter(ERROR)
            error, completion = self._error.get(now, key, start), self._completion.get(now, key, start)
            if error is None or isinstance(error, Unreadable):
                error = crash_error(self._path, metadata) or error
        files = _Files(modified, metadata, progress, ranks, error, completion)
        # Of thousands of runs most have not changed since the last sample.
        if self._files is None or not files.is_same(self._files):
            self._built = self._build(files)
        self._files = files
        return self._built

    def _build(self, files: _Files) -> RunRecord:
        self.problems = []
        metadata, progress = self._usable(files.metadata), self._usable(files.progress)
        error, completion = self._usable(files.error), self._usable(files.completion)
        for document in (metadata, progress):
            if document:
                self.problems += [RecordProblem(UNEXPECTED, self.run_id, problem) for problem in document.problems]
        return RunRecord(
            run_id=self.run_id,
            modified=files.modified,
            thresholds=_thresholds(metadata, self._defaults),
            has_metadata=files.metadata is not None,
            has_progress=files.progress is not None,
            node_only=files.metadata is None and files.progress is None and files.ranks is not None,
            metadata=metadata,
            progress=progress,
            error=error,
            completion=completion,
            ranks=self._usable_ranks(files.ranks),
        )

    def steps(self, record: RunRecord, now: float) -> StepTimes:
        """Return when the attempt's step last advanced and last changed: as recorded, else as it was seen."""
        progress, seen = record.current_progress, self._steps_seen
        if progress is None:
            return StepTimes(None, None)
        advanced, changed = plausible_timestamp(progress.step_time, now), plausible_timestamp(progress.moved_time, now)
        return StepTimes(
            seen.time if advanced is None and seen else advanced,
            seen.moved_time if changed is None and seen else changed,
        )

    def verdict(self, record: RunRecord) -> FailureVerdict | None:
        """Return the verdict on a failed attempt; the first one that names a failure stays, whatever comes later."""
        if record.state != "failed":
            return None
        # Without a key the next attempt looks like this one: infer it anew each time.
        known = self._verdict
        if known is None or known[0] is None or known[0] != record.attempt_key or known[1].failure == UNKNOWN_END:
            known = self._verdict = (record.attempt_key, failure_verdict(record))
        return known[1]

    def _usable(self, value: T | Unreadable | None) -> T | None:
        if isinstance(value, Unreadable):
            self.problems.append(RecordProblem(UNREADABLE, self.run_id, str(value)))
            return None
        return value

    def _usable_ranks(self, found: list[RankBeat | Unreadable] | Unreadable | None) -> tuple[RankBeat, ...]:
        beats = [self._usable(beat) for beat in self._usable(found) or ()]
        ranks = tuple(beat for beat in beats if beat is not None)
        self.problems += [
            RecordProblem(UNEXPECTED, self.run_id, f"rank {beat.rank}: {text}")
            for beat in ranks
            for text in beat.problems
        ]
        return ranks


def _read_ranks(path: Path) -> list[RankBeat | Unreadable] | Unreadable | None:
    try:
        with os.scandir(path / RANKS) as entries:
            count = sum(1 for _ in itertools.islice(entries, MAX_RANKS + 1))
    except OSError as error:
        return Unreadable(path / RANKS, error.strerror or str(error))
    if count > MAX_RANKS:
        return Unreadable(path / RANKS, f"holds more than {MAX_RANKS} files")
    ranks = read_ranks(path, limit=MAX_RANKS)
    return ranks if len(ranks) <= MAX_RANKS else Unreadable(path / RANKS, f"holds more than {MAX_RANKS} ranks")


def _thresholds(metadata: Metadata | None, defaults: Thresholds) -> Thresholds:
    """Return what the record states; the records of other tools state nothing and get the exporter's defaults."""
    if metadata is None or (metadata.version is None and metadata.thresholds == Thresholds()):
        return defaults
    return metadata.thresholds
