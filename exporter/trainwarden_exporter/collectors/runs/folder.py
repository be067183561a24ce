"""One run's folder, read again and again: what its files say now, and what was seen of them before."""

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
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.view import (
    KEPT_SECONDS,
    Advance,
    RunRecord,
    Steps,
    Verdict,
    advance,
    believed,
    is_quiet,
    verdict,
)
from trainwarden_exporter.core.files import CachedFile, last_line
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.sentinels import Sentinel
    from trainwarden_exporter.core.metric import Metric, Row

T = TypeVar("T")

MAX_RANKS = 16384
# What was not written to for so long tells of a run that is over, however far off the clock of its writer is.
LEFT_SECONDS = 3 * KEPT_SECONDS
UNREADABLE, UNEXPECTED = "unreadable", "unexpected_value"


@dataclass(frozen=True)
class Problem:
    """Something of a record that cannot be used: a word for the label, the folder's name, the details for the log."""

    reason: str
    folder: str
    text: str


@dataclass(frozen=True)
class CachedSamples:
    """The rows of a run, and what they were made of."""

    record: RunRecord
    steps: Steps
    complete: bool | None
    rows: list[tuple[Metric, list[Row]]]

    def is_of(self, record: RunRecord, steps: Steps, complete: bool | None) -> bool:
        """Whether the same would be made of these. A record that did not change is the same object."""
        return record is self.record and steps == self.steps and complete is self.complete


@dataclass(frozen=True)
class _Files:
    """What the files of a record hold."""

    modified: float
    metadata: Metadata | Unreadable | None
    progress: Progress | Unreadable | None
    ranks: list[RankBeat | Unreadable] | Unreadable | None
    error: Sentinel | Unreadable | None
    completion: Sentinel | Unreadable | None

    def are(self, other: _Files) -> bool:
        """Whether these were read only once; a crash is looked for each time."""
        return (
            self.modified == other.modified
            and self.metadata is other.metadata
            and self.progress is other.progress
            and self.ranks is other.ranks
            and self.completion is other.completion
            and (self.error is other.error or self.error == other.error)
        )


class RunFolder:
    """What is known of one run.

    Attributes:
        problems: those of the last look.
        observed: when its source last said how it is, Unix seconds; None where that is now.
        sheet: what was exported last.
        last_words: the last line of its log, if the attempt failed or is quiet.
    """

    def __init__(self, path: Path, defaults: Thresholds) -> None:
        self.run_id = path.name
        self.problems: list[Problem] = []
        self.asleep_until = 0.0
        self.shown: RunRecord | None = None  # as it was exported last
        self.observed: float | None = None
        self.last_words: str | None = None
        self._path = path
        self._defaults = defaults
        self._metadata = CachedFile(path / METADATA, lambda: read_metadata(path))
        self._progress = CachedFile(path / PROGRESS, lambda: read_progress(path))
        self._error = CachedFile(path / ERROR, partial(current_error, path))
        self._completion = CachedFile(path / COMPLETE, partial(current_completion, path))
        self._ranks = CachedFile(path / RANKS, lambda: _read_ranks(path))
        self._advance: Advance | None = None
        self._files: _Files | None = None
        self._built = self._raw = self._understood = RunRecord(self.run_id, 0.0, defaults)
        self.sheet: CachedSamples | None = None
        self._verdict: tuple[str | None, Verdict] | None = None

    def read(self, now: float) -> RunRecord:
        """Return the record as its files are now; raises `OSError` if the folder is gone or cannot be looked into."""
        raw = self._record(now)
        if raw is not self._raw:
            self._raw, self._understood = raw, self.understood(raw)
        record = self._understood
        self._advance = advance(self._advance, record, now)
        if record.state == "failed" or is_quiet(record, self.steps(record, now).advanced, now):
            enter(LOG)
            self.last_words = last_line(self._path / LOG)
        return record

    def is_left(self, now: float) -> bool:
        """Whether nothing was written here for so long that it need not be read; raises `OSError` as `read` does."""
        if now - self._modified() < LEFT_SECONDS:
            return False
        times = []
        for name in (METADATA, PROGRESS, RANKS):
            with contextlib.suppress(FileNotFoundError):
                times.append(os.lstat(self._path / name).st_mtime)
        return now - max(times, default=0.0) > LEFT_SECONDS

    def our_time(self, stated: float | None, metadata: Metadata | None) -> float | None:  # noqa: ARG002  # copies ask
        """Return a time that the writer stated by this host's clock."""
        return stated

    def understood(self, record: RunRecord) -> RunRecord:
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
        # Of which attempt a sentinel speaks cannot be told while it is not known which one owns the record.
        if not isinstance(metadata, Unreadable):
            key = metadata.attempt_key if metadata else None
            stated = (metadata.attempt_start_time or metadata.start_time) if metadata else None
            start = self.our_time(stated, metadata)
            enter(ERROR)
            error, completion = self._error.get(now, key, start), self._completion.get(now, key, start)
            if error is None or isinstance(error, Unreadable):
                error = crash_error(self._path, metadata) or error
        files = _Files(modified, metadata, progress, ranks, error, completion)
        # Most files have not changed since the last look, of thousands of runs.
        if self._files is None or not files.are(self._files):
            self._built = self._build(files)
        self._files = files
        return self._built

    def _build(self, files: _Files) -> RunRecord:
        self.problems = []
        metadata, progress = self._usable(files.metadata), self._usable(files.progress)
        error, completion = self._usable(files.error), self._usable(files.completion)
        for document in (metadata, progress):
            if document:
                self.problems += [Problem(UNEXPECTED, self.run_id, problem) for problem in document.problems]
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

    def steps(self, record: RunRecord, now: float) -> Steps:
        """Return when the attempt's step last advanced and last changed: as the record says, else as it was seen."""
        progress, seen = record.current_progress, self._advance
        if progress is None:
            return Steps(None, None)
        advanced, changed = believed(progress.step_time, now), believed(progress.moved_time, now)
        return Steps(
            seen.time if advanced is None and seen else advanced,
            seen.moved_time if changed is None and seen else changed,
        )

    def verdict(self, record: RunRecord) -> Verdict | None:
        """Return the verdict on a failed attempt; the first one stays, whatever is written later."""
        if record.state != "failed":
            return None
        # Without a key the next attempt looks like this one, so its verdict is made anew each time.
        if self._verdict is None or self._verdict[0] is None or self._verdict[0] != record.attempt_key:
            self._verdict = (record.attempt_key, verdict(record))
        return self._verdict[1]

    def _usable(self, value: T | Unreadable | None) -> T | None:
        if isinstance(value, Unreadable):
            self.problems.append(Problem(UNREADABLE, self.run_id, str(value)))
            return None
        return value

    def _usable_ranks(self, found: list[RankBeat | Unreadable] | Unreadable | None) -> tuple[RankBeat, ...]:
        beats = [self._usable(beat) for beat in self._usable(found) or ()]
        ranks = tuple(beat for beat in beats if beat is not None)
        self.problems += [
            Problem(UNEXPECTED, self.run_id, f"rank {beat.rank}: {text}") for beat in ranks for text in beat.problems
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
    return read_ranks(path)


def _thresholds(metadata: Metadata | None, defaults: Thresholds) -> Thresholds:
    """What the record states; other tools' records state nothing and get the exporter's own defaults."""
    if metadata is None or (metadata.version is None and metadata.thresholds == Thresholds()):
        return defaults
    return metadata.thresholds
