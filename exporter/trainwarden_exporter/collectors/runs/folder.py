"""One run's folder, read in each sample: the record as its files are now, and what earlier samples saw."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from trainwarden.capabilities import reading_any
from trainwarden.record.crash import crash_error
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, PROGRESS, RANKS
from trainwarden.record.store import UNKNOWN_END
from trainwarden.record.superseded import Superseded, lives_beside, superseded_file
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.documents import (
    MetadataReader,
    bounded_beats,
    read_progress,
    read_sentinel,
    read_superseded,
)
from trainwarden_exporter.collectors.runs.future_times import FutureTimes
from trainwarden_exporter.collectors.runs.last_line import NEEDED, LastLine
from trainwarden_exporter.collectors.runs.limits import (
    BYTES,
    DEFAULT_LIMITS,
    KeptRanks,
    RunLimits,
    ranks_within,
)
from trainwarden_exporter.collectors.runs.limits import RANKS as TOO_MANY_RANKS
from trainwarden_exporter.collectors.runs.problems import UNEXPECTED, UNREADABLE, RecordProblem
from trainwarden_exporter.collectors.runs.rank_files import RankFiles
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
from trainwarden_exporter.core.files import FRESH_SECONDS, CachedFile
from trainwarden_exporter.core.owned_folder import OwnedFolder, ReadBudget
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.rank import RankBeat
    from trainwarden.record.sentinels import Sentinel
    from trainwarden_exporter.core.metric import CachedSamples

T = TypeVar("T")

# What cannot be used of one record: so much is counted, and kept while the record stays as it is.
MAX_PROBLEMS = 20
# Of so many attempts before the present one is looked whether they still live.
MAX_RIVALS = 3
# A folder that was not written to for so long belongs to a run that is over, however far off its writer's clock is.
ABANDONED_SECONDS = 3 * EXPIRY_SECONDS


class _Files(NamedTuple):
    """The contents of a record's files."""

    modified: float
    metadata: Metadata | Unreadable | None
    progress: Progress | Unreadable | None
    ranks: list[RankBeat | Unreadable] | Unreadable | None
    error: Sentinel | Unreadable | None
    completion: Sentinel | Unreadable | None

    @property
    def is_empty(self) -> bool:
        """There is none."""
        files = (self.metadata, self.progress, self.ranks, self.error, self.completion)
        return all(file is None for file in files)

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
class S3Place:
    """Where a record is in S3: `s3://bucket/prefix/run/`, and its page in the console of AWS, empty elsewhere."""

    url: str
    console: str


@dataclass(frozen=True)
class _Verdict:
    """The verdict on a failed attempt, with its key and the record that it was made from."""

    record: RunRecord
    key: str | None
    verdict: FailureVerdict


class RunFolder:
    """The state of one run.

    Args:
        path: the run's folder.
        defaults: thresholds of a record that states none.
        last_line: when the last line of its log is shown: NEEDED, ALWAYS or NEVER.
        limits: of what is read and kept.
        budget: of what is read of its owner's files in one round; None for any.
        crash_budget: of what is done to find crashes in its owner's runs in one round; None for any.
        kept_ranks: how many ranks of it are kept beside those of other runs; None for as many as `limits` allow.
        host: whose ranks are read, beside those with a file of their own; those of all hosts if None.

    Attributes:
        owner: uid of the user whose record it is; 0 before it was read.
        left_out: why something of it was left out in the last sample, of `limits.REASONS`.
        shows_ranks: its ranks have a place on the page.
        problems: those of the last sample.
        rivals: older attempts that still live beside the present one.
        asleep_until: the folder has expired and is not read before then, by a monotonic clock.
        last_round: the number of the round in which it was read last; 0 before.
        shown: the record as it was exported last.
        observed: when the record was last confirmed in S3, Unix seconds; None for a record in the runs folder.
        s3_place: where it is in S3; None for a record in the runs folder.
        made_from: what the samples of the record were made from last.
        cached: these samples, where they were made from the same before.
        cached_settings: those of its settings, which stay while only the progress changes.
        cached_places: those of where its ranks run.
        cached_texts: those of its failure and the last texts, with the state and the attempt that they are of.
        last_line: of its log, where it is to be shown.
    """

    def __init__(
        self,
        path: Path,
        defaults: Thresholds,
        last_line: str = NEEDED,
        limits: RunLimits = DEFAULT_LIMITS,
        budget: ReadBudget | None = None,
        host: str | None = None,
        crash_budget: ReadBudget | None = None,
        kept_ranks: KeptRanks | None = None,
    ) -> None:
        self.run_id = path.name
        self.owner = 0
        self.left_out: frozenset[str] = frozenset()
        self.shows_ranks = True
        self.problems: list[RecordProblem] = []
        self.rivals: tuple[Superseded, ...] = ()
        self.asleep_until = 0.0
        self.last_round = 0
        self.shown: RunRecord | None = None
        self.observed: float | None = None
        self.s3_place: S3Place | None = None
        self.last_line: str | None = None
        self._path = path
        self._defaults = defaults
        self._last_line = LastLine(last_line)
        self._limits = limits
        self._budget = budget
        self._crash_budget = crash_budget
        self._kept_ranks = kept_ranks
        self._crashed: tuple[str | None, Sentinel | None] = (None, None)
        limit = limits.file_bytes
        self._metadata = CachedFile(METADATA, MetadataReader(limit))
        self._progress = CachedFile(PROGRESS, partial(read_progress, limit=limit))
        self._error = CachedFile(ERROR, partial(read_sentinel, ERROR, limit))
        self._completion = CachedFile(COMPLETE, partial(read_sentinel, COMPLETE, limit))
        self._ranks = CachedFile(RANKS, self._read_ranks)
        self._superseded: dict[int, CachedFile[[], Superseded]] = {}
        self._rank_files = RankFiles(limits, host)
        self._too_many_ranks = False
        self._was_read = False
        self._changed: int | None = None
        self._future = FutureTimes()
        self._steps_seen: StepHistory | None = None
        self._files: _Files | None = None
        self._built = self._raw = self._localized = RunRecord(self.run_id, 0.0, defaults)
        self.made_from: object = None
        self.cached: CachedSamples | None = None
        self.cached_settings: CachedSamples | None = None
        self.cached_places: CachedSamples | None = None
        self.cached_texts: tuple[tuple[str | None, str | None], CachedSamples] | None = None
        self._verdict: _Verdict | None = None
        self._numbers: list[int] = []
        self._labels: list[tuple[str, str]] = []

    def read(self, now: float) -> RunRecord:
        """Return the record as its files are now; raise `OSError` if the folder is gone or cannot be read."""
        enter("stat")
        with OwnedFolder.opened(self._path, self._budget) as files:
            self.owner = files.owner
            raw = self._record(files, now)
            if raw is not self._raw or self._future.is_due(now):
                self._raw, self._localized = raw, self._future.replaced(self.localized(raw), now)
            record = self._localized
            self._steps_seen = observe_step(self._steps_seen, record, now)
            self.rivals = self._living_rivals(files, record, now)
            self.last_line = self._shown_last_line(files, record, now)
            reasons = {BYTES: files.postponed, TOO_MANY_RANKS: self._too_many_ranks}
        self.left_out = frozenset(reason for reason, holds in reasons.items() if holds)
        self._was_read = self._was_read or BYTES not in self.left_out
        return record

    def forget_samples(self) -> None:
        """Keep no samples of a run that has no place on the page."""
        self.made_from = None
        self.cached = self.cached_settings = self.cached_places = self.cached_texts = None

    def postponed(self) -> RunRecord | None:
        """Return the record as it was read last, where there is no time to read it; None if it never was as a whole."""
        self.left_out |= {BYTES}
        return self._localized if self._was_read else None

    def _shown_last_line(self, files: OwnedFolder, record: RunRecord, now: float) -> str | None:
        needed = record.state == "failed" or is_quiet(record, self.steps(record, now).advanced, now)
        return self._last_line.read(files, (record.state, record.attempt_key), now, needed=needed)

    def _living_rivals(self, files: OwnedFolder, record: RunRecord, now: float) -> tuple[Superseded, ...]:
        """Return which of the last attempts before the present one live, by the files that they write then."""
        attempt = record.metadata.attempt if record.metadata and record.state == "running" else None
        owner = self._metadata.modified
        if not attempt or owner is None:
            return ()
        enter(METADATA)
        numbers = range(max(0, attempt - MAX_RIVALS), attempt)
        self._superseded = {
            number: self._superseded.get(number)
            or CachedFile(superseded_file(number), partial(read_superseded, number, self._limits.file_bytes))
            for number in numbers
        }
        found = []
        for cached in self._superseded.values():
            document = cached.get(files, now)
            if not isinstance(document, Superseded) or cached.modified is None:
                continue
            if lives_beside(document, cached.modified, owner, now):
                found.append(document)
        return tuple(found)

    def is_abandoned(self, now: float) -> bool:
        """Return whether nothing was written for `ABANDONED_SECONDS`; raise `OSError` as `read`."""
        enter("stat")
        with OwnedFolder.opened(self._path) as files:
            self.owner = files.owner
            times = [files.status.st_mtime]
            if now - times[0] >= ABANDONED_SECONDS:
                for name in (METADATA, PROGRESS, RANKS):
                    with contextlib.suppress(FileNotFoundError):
                        times.append(files.stat(name).st_mtime)
        return now - max(times) >= ABANDONED_SECONDS

    def to_local_time(self, stated: float | None, metadata: Metadata | None) -> float | None:  # noqa: ARG002  # for copies
        """Return a time that the writer stated by this host's clock."""
        return stated

    def localized(self, record: RunRecord) -> RunRecord:
        """Return the record by this host's clock."""
        return record

    def _record(self, files: OwnedFolder, now: float) -> RunRecord:
        modified = files.status.st_mtime
        known = self._files
        # Exact: as a float in seconds, two times in quick succession are one.
        changed, self._changed = self._changed != files.status.st_mtime_ns, files.status.st_mtime_ns
        was_empty = known is not None and known.is_empty and not changed and not self.left_out
        if was_empty and now - modified > FRESH_SECONDS:
            return self._built  # a file that comes changes the folder
        enter(METADATA)
        metadata = self._metadata.get(files, now)
        enter(PROGRESS)
        progress = self._progress.get(files, now)
        enter(RANKS)
        ranks = self._ranks.get(files, now)
        error, completion = None, None
        # Without readable metadata the attempt is unknown that a sentinel has to match.
        if not isinstance(metadata, Unreadable):
            key = metadata.attempt_key if metadata else None
            stated = (metadata.attempt_start_time or metadata.start_time) if metadata else None
            start = self._future.seen("attempt", "start", self.to_local_time(stated, metadata), now)
            enter(ERROR)
            error = self._error.get(files, now, key, start)
            completion = self._completion.get(files, now, key, start)
            if error is None or isinstance(error, Unreadable):
                error = self._crash(files, metadata, ranks) or error
        found = _Files(modified, metadata, progress, ranks, error, completion)
        # Of thousands of runs most have not changed since the last sample.
        if known is None or not found.is_same(known):
            self._built = self._build(found)
        self._files = found
        return self._built

    def _crash(self, files: OwnedFolder, metadata: Metadata | None, ranks: object) -> Sentinel | None:
        """Return the `_error` that stands for the crash of a rank; None if there is none."""
        if ranks is None or isinstance(ranks, Unreadable):
            return None
        spent = False

        def take(cost: int) -> bool:
            nonlocal spent
            spent = self._crash_budget is not None and not self._crash_budget.take(files.owner, cost)
            return not spent

        found = None
        # Of a process that crashes only the content of its trace changes, which began with it.
        if self._rank_files.traces:
            with reading_any():
                found = crash_error(Path(files.as_path), metadata, files.owner, take, self._rank_files.traces)
        key = metadata.attempt_key if metadata else None
        if not spent:
            self._crashed = key, found and found.replace(run_id=self.run_id, traceback=None)
        # That of an earlier sample, until it is looked for again.
        return self._crashed[1] if self._crashed[0] == key else None

    def _build(self, files: _Files) -> RunRecord:
        self.problems = []
        metadata, progress = self._usable(files.metadata), self._usable(files.progress)
        error, completion = self._usable(files.error), self._usable(files.completion)
        for document in (metadata, progress):
            if document:
                self.problems += [RecordProblem(UNEXPECTED, self.run_id, problem) for problem in document.problems]
        ranks = self._usable_ranks(files.ranks)
        del self.problems[MAX_PROBLEMS:]
        return RunRecord(
            run_id=self.run_id,
            modified=files.modified,
            thresholds=_thresholds(metadata, self._defaults),
            has_metadata=files.metadata is not None,
            has_progress=files.progress is not None,
            node_only=files.metadata is None and files.progress is None and files.ranks is not None,
            lacks_ranks=self._too_many_ranks,
            metadata=metadata,
            progress=progress,
            error=error,
            completion=completion,
            ranks=ranks,
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

    def labels_of(self, ranks: Sequence[RankBeat]) -> list[tuple[str, str]]:
        """Return run and rank of each, which are kept: they stay while the run trains."""
        numbers = [beat.rank for beat in ranks]
        if self._numbers != numbers:
            self._numbers, self._labels = numbers, [(self.run_id, str(number)) for number in numbers]
        return self._labels

    def verdict(self, record: RunRecord) -> FailureVerdict | None:
        """Return the verdict on a failed attempt; the first one that names a failure stays, whatever comes later."""
        if record.state != "failed":
            return None
        # Without a key the next attempt looks like this one: infer it anew from another record.
        known, key = self._verdict, record.attempt_key
        is_final = known is not None and key is not None and known.key == key and known.verdict.failure != UNKNOWN_END
        if known is None or not (is_final or known.record is record):
            known = self._verdict = _Verdict(record, key, failure_verdict(record))
        return known.verdict

    def _read_ranks(self, files: OwnedFolder) -> list[RankBeat | Unreadable] | Unreadable | None:
        """Read the files of ranks; of more than the limits allow the lowest ranks are kept."""
        found = self._rank_files.read(files)
        if isinstance(found, Unreadable):
            return found
        beats = bounded_beats(beat for beat in found if not isinstance(beat, Unreadable))
        if self._kept_ranks is None:
            kept = ranks_within(beats, self._limits.run_series)
        else:
            kept = self._kept_ranks.keep_first(self.run_id, files.owner, beats)
        self._too_many_ranks = kept < len(beats)
        unreadable = (each for each in found if isinstance(each, Unreadable))
        return [*beats[:kept], *itertools.islice(unreadable, MAX_PROBLEMS)]

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


def _thresholds(metadata: Metadata | None, defaults: Thresholds) -> Thresholds:
    """Return what the record states; the records of other tools state nothing and get the exporter's defaults."""
    if metadata is None or (metadata.version is None and metadata.thresholds == Thresholds()):
        return defaults
    return metadata.thresholds
