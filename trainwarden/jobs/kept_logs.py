"""The copies of logs in the records of the watch, bounded for each user: the oldest go first."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.record.folder import LOG
from trainwarden.record.metadata import Metadata, read_metadata

_LOGS, _, _LATEST = LOG.rpartition("/")


@dataclass(frozen=True)
class _Copy:
    path: Path
    size: int
    modified: int  # ns


@dataclass(frozen=True)
class _Run:
    """A folder of the runs folder; `user` is None where this process does not write its record for a user."""

    name: str
    user: int | None = None
    lives: bool = False
    copies: Sequence[_Copy] = ()


class KeptLogs:
    """Removes copies of logs where those of one user's jobs take more than `limit` bytes.

    The oldest go first, of jobs that have ended before those of jobs that live. The record itself stays.

    Args:
        runs: the folder of the run records; those that this process writes for users count.
        limit: bytes of each user.
    """

    def __init__(self, runs: Path, limit: int) -> None:
        self._runs = runs
        self._limit = limit
        # Of runs that have ended, by name: nobody changes their copies any more.
        self._ended: dict[str, _Run] = {}

    def bound(self, live: Collection[str]) -> set[int]:
        """Remove what is too much; return the uids of the users that it belonged to.

        Args:
            live: the runs whose jobs this process watches.
        """
        try:
            names = [path.name for path in self._runs.iterdir()]
        except OSError:
            return set()
        runs = [self._ended[name] if name in self._ended and name not in live else self._look(name) for name in names]
        self._ended = {run.name: run for run in runs if not run.lives and run.name not in live}
        found: defaultdict[int, list[tuple[bool, _Copy]]] = defaultdict(list)
        for run in runs:
            if run.user is not None:
                found[run.user] += ((run.lives or run.name in live, copy) for copy in run.copies)
        return {user for user, copies in found.items() if self._cut(copies)}

    def _cut(self, copies: list[tuple[bool, _Copy]]) -> bool:
        excess = sum(copy.size for _, copy in copies) - self._limit
        if excess <= 0:
            return False
        for lives, copy in sorted(copies, key=lambda each: (each[0], each[1].modified)):
            with contextlib.suppress(OSError):
                if lives and copy.path.name == _LATEST:
                    os.truncate(copy.path, 0)  # its job goes on writing it
                else:
                    copy.path.unlink()
            self._ended.pop(copy.path.parent.parent.name, None)
            excess -= copy.size
            if excess <= 0:
                break
        return True

    def _look(self, name: str) -> _Run:
        folder = self._runs / name
        try:
            if folder.stat(follow_symlinks=False).st_uid != os.geteuid():
                return _Run(name)
            metadata = read_metadata(folder)
            if not isinstance(metadata, Metadata) or metadata.user_id is None:
                return _Run(name)
            with os.scandir(folder / _LOGS) as entries:
                files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
                statuses = [(entry.path, entry.stat(follow_symlinks=False)) for entry in files]
        except OSError:
            return _Run(name)
        copies = [_Copy(Path(path), status.st_size, status.st_mtime_ns) for path, status in statuses]
        return _Run(name, metadata.user_id, metadata.is_live, copies)
