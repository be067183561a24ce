"""Records that were copied from S3: told of as those in a folder are, with times that no other clock can bend."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trainwarden.record.document import Unreadable
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.core.files import CachedFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainwarden.record.metadata import Metadata
    from trainwarden.record.progress import Progress
    from trainwarden.record.sentinels import Sentinel
    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.view import RunRecord

INDEX = ".s3.json"
# What a copy takes on its way is no difference between clocks, and what is a day old was written a day ago.
ON_ITS_WAY_SECONDS, NO_SKEW_SECONDS = 90.0, 24 * 3600.0

Timed = TypeVar("Timed", "Metadata", "Progress")
_TIMES = (
    "start_time", "attempt_start_time", "phase_time", "end_time", "last_update", "last_updated", "step_time",
    "moved_time",
)  # fmt: skip


class CopiedFolder(RunFolder):
    """The copy of one run. The times of its files are those at which S3 took them, by this host's clock.

    Heartbeats are these times. All other times were stated by the writer's clock; they are moved by as much as that
    clock is off, which is what its last heartbeat states against the time of the object.
    """

    def __init__(self, path: Path, defaults: Thresholds) -> None:
        super().__init__(path, defaults)
        self._ahead: tuple[str | None, float] | None = None

    def our_time(self, stated: float | None, metadata: Metadata | None) -> float | None:
        """Return a time of the writer's clock by this host's."""
        return None if stated is None else stated - self._writer_ahead(metadata)

    def understood(self, record: RunRecord) -> RunRecord:
        """Return the record by this host's clock, its heartbeats those that S3 has seen."""
        ahead = self._writer_ahead(record.metadata)
        metadata, progress = record.metadata, record.progress
        if metadata and self._believes_object(metadata):
            metadata = _moved(metadata, ahead).replace(last_update=self._metadata.modified)
        if progress:
            seen, stated = self._progress.modified, progress.last_updated
            progress = _moved(progress, ahead)
            if stated is not None and seen is not None and abs(stated - seen) < NO_SKEW_SECONDS:
                progress = progress.replace(last_updated=seen)
            if progress.checkpoint and progress.checkpoint.time is not None:
                saved = progress.checkpoint.replace(time=progress.checkpoint.time - ahead)
                progress = progress.replace(checkpoint=saved)
        error, completion = _stated(record.error, ahead), _stated(record.completion, ahead)
        return replace(record, metadata=metadata, progress=progress, error=error, completion=completion)

    def _believes_object(self, metadata: Metadata) -> bool:
        seen, stated = self._metadata.modified, metadata.last_update
        return seen is not None and stated is not None and abs(stated - seen) < NO_SKEW_SECONDS

    def _writer_ahead(self, metadata: Metadata | None) -> float:
        """Return by how much the writer's clock is ahead: the most seen of an attempt, for copies come late."""
        seen = self._metadata.modified
        if metadata is None or metadata.last_update is None or seen is None or not self._believes_object(metadata):
            return 0.0
        ahead = metadata.last_update - seen
        if self._ahead is not None and self._ahead[0] == metadata.attempt_key:
            ahead = max(ahead, self._ahead[1])
        self._ahead = (metadata.attempt_key, ahead)
        return ahead if abs(ahead) > ON_ITS_WAY_SECONDS else 0.0


class Copies:
    """The folders of copies, one for each prefix; which runs are in them the index of each says."""

    def __init__(self, places: Sequence[Path], defaults: Thresholds) -> None:
        self._defaults = defaults
        self._indexes = [(place, CachedFile(place / INDEX, lambda place=place: _looked(place))) for place in places]
        self._folders: dict[Path, CopiedFolder] = {}

    def folders(self, now: float) -> dict[str, CopiedFolder]:
        """Return the runs there are, by run id; of one in two places the one that was looked at last."""
        found: dict[str, CopiedFolder] = {}
        kept: dict[Path, CopiedFolder] = {}
        for place, index in self._indexes:
            looked = index.get(now)
            for run_id, time in () if looked is None or isinstance(looked, Unreadable) else looked.items():
                path = place / run_id
                folder = kept[path] = self._folders.get(path) or CopiedFolder(path, self._defaults)
                folder.observed = time
                if run_id not in found or (found[run_id].observed or 0.0) < time:
                    found[run_id] = folder
        self._folders = kept
        return found


def _moved(stated: Timed, ahead: float) -> Timed:
    if not ahead:
        return stated
    times = {name: getattr(stated, name, None) for name in _TIMES}
    return stated.replace(**{name: time - ahead for name, time in times.items() if time is not None})


def _stated(sentinel: Sentinel | None, ahead: float) -> Sentinel | None:
    """One of another tool states no time: it has that of the object."""
    if sentinel is None or sentinel.attempt_key is None:
        return sentinel
    return sentinel.replace(time=sentinel.time - ahead)


def _looked(place: Path) -> Mapping[str, float] | Unreadable:
    """When S3 last said how each run is."""
    try:
        document = json.loads((place / INDEX).read_bytes())
        return {run_id: float(run["looked"]) for run_id, run in document["runs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(place / INDEX, str(error))
