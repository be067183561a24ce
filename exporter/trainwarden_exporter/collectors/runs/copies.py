"""Copies of the records in S3, with the times of the writer's clock moved to this host's."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from trainwarden.record.document import FileContent, Unreadable
from trainwarden.record.folder import LOG
from trainwarden_exporter.collectors.runs.folder import RunFolder, S3Place
from trainwarden_exporter.collectors.runs.future_times import METADATA_TIMES, PROGRESS_TIMES
from trainwarden_exporter.collectors.runs.last_line import NEEDED
from trainwarden_exporter.collectors.runs.limits import DEFAULT_LIMITS, RunLimits
from trainwarden_exporter.collectors.runs.log_evidence import completed, names_cause, verdict_of
from trainwarden_exporter.collectors.s3.local_copy import INDEX, LOG_BYTES
from trainwarden_exporter.core.files import CachedFile
from trainwarden_exporter.core.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.sentinels import Sentinel
    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord
    from trainwarden_exporter.core.shared_state import LogVerdict

# Of 100,000 runs and more.
_MAX_INDEX_BYTES = 64 * 2**20
# A smaller difference is the delay of the copy; a larger one the age of the record. Neither is a skew of clocks.
MAX_COPY_SECONDS, MAX_SKEW_SECONDS = 90.0, 24 * 3600.0

Timed = TypeVar("Timed", "Metadata", "Progress")


@dataclass(frozen=True)
class _Index:
    """What the index of a prefix's copies states: when each run was last looked at in S3, Unix seconds; its place."""

    looked: Mapping[str, float]
    url: str
    is_aws: bool

    def place(self, run_id: str) -> S3Place:
        """Return the place of a run's record."""
        url = f"{self.url.rstrip('/')}/{run_id}/"
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        console = f"https://s3.console.aws.amazon.com/s3/buckets/{quote(bucket)}?prefix={quote(prefix)}"
        return S3Place(url, console if self.is_aws else "")


class CopiedRunFolder(RunFolder):
    """The copy of one run. The modification times of its files are those of the objects in S3, by this host's clock.

    They are used as heartbeats. All other times were stated by the writer's clock; they are moved by its skew, which is
    the difference between the last heartbeat and the modification time of its object.
    """

    def __init__(
        self, path: Path, defaults: Thresholds, last_line: str = NEEDED, limits: RunLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(path, defaults, last_line, limits)
        self._ahead: tuple[str | None, float] | None = None
        self._log_verdict: tuple[float, LogVerdict | None] = (0.0, None)

    def verdict(self, record: RunRecord) -> FailureVerdict | None:
        """Return the verdict on a failed attempt; one without a cause is completed from the end of the run's log."""
        own = super().verdict(record)
        if own is None or names_cause(own):
            return own
        try:
            with OwnedFolder.opened(self._path) as files, open(files.open(LOG), "rb") as file:  # noqa: PTH123  # a descriptor
                status = os.fstat(file.fileno())
                modified = status.st_mtime
                if modified < (record.attempt_start or 0.0) - MAX_COPY_SECONDS:
                    return own  # of an attempt before
                file.seek(max(0, status.st_size - LOG_BYTES))
                end = file.read(LOG_BYTES)
            if modified != self._log_verdict[0]:
                # The end of a longer log begins anywhere in a line.
                whole = end if len(end) < LOG_BYTES else end.partition(b"\n")[2]
                self._log_verdict = (modified, verdict_of(whole.decode("utf-8", "replace")))
        except OSError:
            return own
        return completed(own, self._log_verdict[1])

    def to_local_time(self, stated: float | None, metadata: Metadata | None) -> float | None:
        """Return a time of the writer's clock by this host's."""
        return None if stated is None else stated - self._clock_skew(metadata)

    def localized(self, record: RunRecord) -> RunRecord:
        """Return the record by this host's clock, with the times of the objects as heartbeats."""
        ahead = self._clock_skew(record.metadata)
        metadata, progress = record.metadata, record.progress
        if metadata and self._has_object_time(metadata):
            metadata = _move_times(metadata, ahead).replace(last_update=self._metadata.modified)
        if progress:
            seen, stated = self._progress.modified, progress.last_updated
            progress = _move_times(progress, ahead)
            if stated is not None and seen is not None and abs(stated - seen) < MAX_SKEW_SECONDS:
                progress = progress.replace(last_updated=seen)
            if progress.checkpoint and progress.checkpoint.time is not None:
                saved = progress.checkpoint.replace(time=progress.checkpoint.time - ahead)
                progress = progress.replace(checkpoint=saved)
        error, completion = _move_sentinel(record.error, ahead), _move_sentinel(record.completion, ahead)
        return replace(record, metadata=metadata, progress=progress, error=error, completion=completion)

    def _has_object_time(self, metadata: Metadata) -> bool:
        seen, stated = self._metadata.modified, metadata.last_update
        return seen is not None and stated is not None and abs(stated - seen) < MAX_SKEW_SECONDS

    def _clock_skew(self, metadata: Metadata | None) -> float:
        """Return by how many seconds the writer's clock is ahead: the maximum of an attempt, for copies come late."""
        seen = self._metadata.modified
        if metadata is None or metadata.last_update is None or seen is None or not self._has_object_time(metadata):
            return 0.0
        ahead = metadata.last_update - seen
        if self._ahead is not None and self._ahead[0] == metadata.attempt_key:
            ahead = max(ahead, self._ahead[1])
        self._ahead = (metadata.attempt_key, ahead)
        return ahead if abs(ahead) > MAX_COPY_SECONDS else 0.0


class S3Copies:
    """The folders of copies, one for each prefix; the index of each lists its runs."""

    def __init__(
        self,
        places: Sequence[Path],
        defaults: Thresholds,
        last_line: str = NEEDED,
        limits: RunLimits = DEFAULT_LIMITS,
    ) -> None:
        self._defaults = defaults
        self._limits = limits
        self._last_line = last_line
        self._indexes = [(place, CachedFile(INDEX, _read_index)) for place in places]
        self._folders: dict[Path, CopiedRunFolder] = {}

    def folders(self, now: float) -> dict[str, CopiedRunFolder]:
        """Return the runs by run id; of a run below two prefixes the copy that was confirmed last."""
        found: dict[str, CopiedRunFolder] = {}
        kept: dict[Path, CopiedRunFolder] = {}
        for place, index in self._indexes:
            looked = _look(place, index, now)
            if looked is None or isinstance(looked, Unreadable):
                continue
            for run_id, time in looked.looked.items():
                path = place / run_id
                folder = kept[path] = self._folders.get(path) or CopiedRunFolder(
                    path, self._defaults, self._last_line, self._limits
                )
                folder.observed = time
                folder.s3_place = looked.place(run_id) if looked.url else None
                if run_id not in found or (found[run_id].observed or 0.0) < time:
                    found[run_id] = folder
        self._folders = kept
        return found


def _move_times(stated: Timed, ahead: float) -> Timed:
    if not ahead:
        return stated
    times = {name: getattr(stated, name, None) for name in (*METADATA_TIMES, *PROGRESS_TIMES)}
    return stated.replace(**{name: time - ahead for name, time in times.items() if time is not None})


def _move_sentinel(sentinel: Sentinel | None, ahead: float) -> Sentinel | None:
    """Move the time of a sentinel. One without a key was written by another tool and has the time of the object."""
    if sentinel is None or sentinel.attempt_key is None:
        return sentinel
    return sentinel.replace(time=sentinel.time - ahead)


def _look(place: Path, index: CachedFile[[], _Index], now: float) -> _Index | Unreadable | None:
    try:
        with OwnedFolder.opened(place) as files:
            return index.get(files, now)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(place, error.strerror or str(error))


def _read_index(files: OwnedFolder) -> _Index | Unreadable | None:
    content = files.read(INDEX, _MAX_INDEX_BYTES)
    if not isinstance(content, FileContent):
        return content
    try:
        document = json.loads(content.data)
        looked = {run_id: float(run["looked"]) for run_id, run in document["runs"].items()}
        return _Index(looked, str(document.get("url", "")), document.get("is_aws") is True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Unreadable(files.path / INDEX, str(error))
