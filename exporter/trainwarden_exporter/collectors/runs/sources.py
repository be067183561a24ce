"""Where records are: one runs folder and the copies of what is in S3. Of a run in both the fresher record counts."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.runs.copied import CopiedFolder, Copies
from trainwarden_exporter.collectors.runs.folder import Problem, RunFolder
from trainwarden_exporter.collectors.runs.problems import BLOCKED, INVALID_NAME, Problems
from trainwarden_exporter.collectors.runs.view import KEPT_SECONDS, last_sign
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.view import RunRecord
    from trainwarden_exporter.sampling.blocking_io import Blocked

# An expired record may come to life again, but thousands of them need not be looked at each time.
ASLEEP_SECONDS = 15.0
# A copy is some seconds behind; which of the two is shown must not change all the time.
FRESHER_SECONDS = 60.0


@dataclass(frozen=True)
class Found:
    """A run's record and where it was found; `copied`: in S3."""

    folder: RunFolder
    record: RunRecord

    @property
    def copied(self) -> bool:
        """Whether the record is that of S3."""
        return isinstance(self.folder, CopiedFolder)


class Sources:
    """All runs there are.

    Args:
        path: the runs folder; need not exist yet.
        places: folders of copies.
        defaults: thresholds of records that state none.
        problems: takes what cannot be used.

    Attributes:
        known: the runs of which there is a folder or a copy, whatever is in it.
        blocked: the runs whose folders do not answer, and the call that each is in.
        asleep: how many have expired.
    """

    def __init__(self, path: Path, places: Sequence[Path], defaults: Thresholds, problems: Problems) -> None:
        self._path = path
        self._copies = Copies(places, defaults)
        self._defaults = defaults
        self._problems = problems
        self._reader: BlockingIoPool[RunFolder] = BlockingIoPool()
        self._folders: dict[str, RunFolder] = {}
        self.known: frozenset[str] = frozenset()
        self.blocked: list[Blocked[RunFolder]] = []
        self.asleep = 0

    def look(self, now: float) -> list[Found]:
        """Return every run that has not expired.

        Raises:
            OSError: the runs folder is there and cannot be read.
            TooManyBlocked: nothing on its file system answers.
        """
        self._folders = {
            name: self._folders.get(name) or RunFolder(self._path / name, self._defaults) for name in self._names()
        }
        copies = self._copies.folders(now)
        self.known = frozenset(self._folders.keys() | copies.keys())
        folders = [*self._folders.values(), *copies.values()]
        awake = [folder for folder in folders if folder.asleep_until <= now]
        records = self._reader.map(awake, lambda folder: self._read(folder, now))
        self.blocked = self._reader.blocked
        self._problems.add(Problem(BLOCKED, each.key.run_id, f"{each.call} does not answer") for each in self.blocked)
        found: dict[str, Found] = {}
        for folder in awake:
            record = records.get(folder)
            if record is not None:
                self._problems.add(folder.problems)
                known = found.get(folder.run_id)
                found[folder.run_id] = (
                    Found(folder, record) if known is None else _fresher(known, Found(folder, record), now)
                )
        self.asleep = sum(folder.asleep_until > now for folder in folders if folder.run_id not in found)
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
                self._problems.add([Problem(INVALID_NAME, name, str(error))])
        return names

    def _read(self, folder: RunFolder, now: float) -> RunRecord | None:
        """Read one run; None if it has expired or cannot be read."""
        record = None
        with self._problems.isolated(folder.run_id):
            if folder.shown is None and not isinstance(folder, CopiedFolder) and folder.is_left(now):
                folder.asleep_until = now + ASLEEP_SECONDS
                return None
            found = folder.read(now)
            if now - last_sign(found, now) > KEPT_SECONDS:
                folder.asleep_until = now + ASLEEP_SECONDS
            else:
                record = found
        return record


def _fresher(here: Found, copy: Found, now: float) -> Found:
    """Of one run: what lies here, unless S3 knows more. The ranks are always those of this folder: S3 has none."""
    lacks = here.record.metadata is None and copy.record.metadata is not None
    if lacks or last_sign(copy.record, now) > last_sign(here.record, now) + FRESHER_SECONDS:
        return Found(copy.folder, replace(copy.record, ranks=here.record.ranks))
    return here


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """A link is not followed here: where it leads to may not answer."""
    try:
        return entry.is_symlink() or entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
