"""Find all runs: in the runs folder and in the copies of records in S3. Of a run in both, the fresher record counts."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.runs.copies import CopiedRunFolder, S3Copies
from trainwarden_exporter.collectors.runs.folder import NEEDED, RunFolder
from trainwarden_exporter.collectors.runs.problems import BLOCKED, INVALID_NAME, RecordProblem, RecordProblems
from trainwarden_exporter.collectors.runs.record import EXPIRY_SECONDS, last_activity
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.record import RunRecord
    from trainwarden_exporter.sampling.blocking_io import Blocked

# An expired record may be written to again, but thousands of them need not be looked at in each sample.
ASLEEP_SECONDS = 15.0
# A copy is some seconds late; the choice between the two must not change in each sample.
FRESHER_SECONDS = 60.0


@dataclass(frozen=True)
class DiscoveredRun:
    """A run's record and its folder."""

    folder: RunFolder
    record: RunRecord

    @property
    def copied(self) -> bool:
        """The record is that of S3."""
        return isinstance(self.folder, CopiedRunFolder)


class RunDiscovery:
    """Reads the records of all runs.

    Args:
        path: the runs folder; need not exist yet.
        copies: folders of copies of records in S3.
        defaults: thresholds of records that state none.
        problems: takes what cannot be used.
        timeout: seconds until a run's folder counts as blocked.
        last_line: when the last lines of logs are shown: NEEDED, ALWAYS or NEVER.

    Attributes:
        known: ids of the runs that have a folder or a copy, whatever is in it.
        blocked: the runs whose folders do not answer, and the call that each is in.
        expired: number of runs without a sign of life for `EXPIRY_SECONDS`.
    """

    def __init__(
        self,
        path: Path,
        copies: Sequence[Path],
        defaults: Thresholds,
        problems: RecordProblems,
        timeout: float,
        last_line: str = NEEDED,
    ) -> None:
        self._path = path
        self._copies = S3Copies(copies, defaults, last_line)
        self._defaults = defaults
        self._last_line = last_line
        self._problems = problems
        self._pool: BlockingIoPool[RunFolder] = BlockingIoPool(timeout)
        self._folders: dict[str, RunFolder] = {}
        self.known: frozenset[str] = frozenset()
        self.blocked: list[Blocked[RunFolder]] = []
        self.expired = 0

    def discover(self, now: float) -> list[DiscoveredRun]:
        """Return every run that has not expired.

        Raises:
            OSError: the runs folder is there and cannot be read.
            TooManyBlocked: nothing on its file system answers.
        """
        self._folders = {
            name: self._folders.get(name) or RunFolder(self._path / name, self._defaults, self._last_line)
            for name in self._names()
        }
        copies = self._copies.folders(now)
        self.known = frozenset(self._folders.keys() | copies.keys())
        folders = [*self._folders.values(), *copies.values()]
        awake = [folder for folder in folders if folder.asleep_until <= now]
        records = self._pool.map(awake, lambda folder: self._read(folder, now))
        self.blocked = self._pool.blocked
        self._problems.extend(
            RecordProblem(BLOCKED, each.key.run_id, f"{each.call} does not answer") for each in self.blocked
        )
        found: dict[str, DiscoveredRun] = {}
        for folder in awake:
            record = records.get(folder)
            if record is not None:
                self._problems.extend(folder.problems)
                known = found.get(folder.run_id)
                found[folder.run_id] = (
                    DiscoveredRun(folder, record)
                    if known is None
                    else _fresher(known, DiscoveredRun(folder, record), now)
                )
        self.expired = sum(folder.asleep_until > now for folder in folders if folder.run_id not in found)
        return list(found.values())

    def _names(self) -> list[str]:
        try:
            with calling(f"scandir {self._path}"), os.scandir(self._path) as entries:
                listed = sorted(
                    entry.name for entry in entries if not entry.name.startswith(".") and _may_be_folder(entry)
                )
        except FileNotFoundError:
            return []
        names = []
        for name in listed:
            try:
                names.append(check_run_id(name))
            except InvalidRunId as error:  # noqa: PERF203  # rare
                self._problems.extend([RecordProblem(INVALID_NAME, name, str(error))])
        return names

    def _read(self, folder: RunFolder, now: float) -> RunRecord | None:
        """Return the record of one run; None if it has expired or cannot be read."""
        record = None
        with self._problems.isolated(folder.run_id):
            if folder.shown is None and not isinstance(folder, CopiedRunFolder) and folder.is_abandoned(now):
                folder.asleep_until = now + ASLEEP_SECONDS
                return None
            found = folder.read(now)
            if now - last_activity(found, now) > EXPIRY_SECONDS:
                folder.asleep_until = now + ASLEEP_SECONDS
            else:
                record = found
        return record


def _fresher(here: DiscoveredRun, copy: DiscoveredRun, now: float) -> DiscoveredRun:
    """Return the record of the runs folder, unless the copy is fresher. S3 has no ranks: they are the folder's."""
    lacks = here.record.metadata is None and copy.record.metadata is not None
    if lacks or last_activity(copy.record, now) > last_activity(here.record, now) + FRESHER_SECONDS:
        return DiscoveredRun(copy.folder, replace(copy.record, ranks=here.record.ranks))
    return here


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link. A link is not followed here: its target may not answer."""
    try:
        return entry.is_symlink() or entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
