"""The names in the runs folder, listed when the folder changed; where there are too many, each user's newest."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.runs.limits import fair_order
from trainwarden_exporter.collectors.runs.problems import INVALID_NAME, RecordProblem
from trainwarden_exporter.core.files import FRESH_SECONDS
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool, TooManyBlocked
from trainwarden_exporter.sampling.calls import calling, enter

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

# Beyond any use: so many names only fill the memory.
MAX_NAMES = 50_000
MAX_PROBLEMS = 1000
# A listing that takes long is done again only after so many times as long.
PAUSE_FACTOR = 20.0


class NamedFolder:
    """A name in the runs folder.

    Attributes:
        owner: uid of the folder or link; None before it was looked at.
        modified: of the folder when it was looked at, Unix seconds.
        asleep_until: the folder has expired and is not read before then, by a monotonic clock.
    """

    __slots__ = ("asleep_until", "modified", "name", "owner")

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: int | None = None
        self.modified = 0.0
        self.asleep_until = 0.0


class RunNames:
    """The names in the runs folder that can be run ids and are those of folders or links.

    Args:
        path: of the runs folder; need not exist yet.
        timeout: seconds until a folder counts as blocked.
        most: names that are kept; each user has the same share.

    Attributes:
        problems: names that are no run ids.
        left_out: number of names beyond `most`.
    """

    def __init__(self, path: Path, timeout: float, most: int = MAX_NAMES) -> None:
        self._path = path
        self._most = most
        self._pool: BlockingIoPool[str] = BlockingIoPool(timeout)
        self._names: dict[str, NamedFolder] = {}
        self._seen: tuple[int, int] | None = None
        self._not_before = 0.0
        self.problems: list[RecordProblem] = []
        self.left_out = 0

    def newest(self, folders: list[NamedFolder], most: int, first: Container[str] = ()) -> list[NamedFolder]:
        """Return at most so many of the folders: of each user the newest, those named in `first` before the others."""
        if len(folders) <= most:
            return folders
        self.look(folders)
        return fair_order(
            folders,
            lambda each: -1 if each.owner is None else each.owner,
            lambda each: (each.name not in first, -each.modified),
        )[:most]

    def look(self, folders: Iterable[NamedFolder]) -> None:
        """Learn the owners of these folders and links, as far as they answer, and when they were changed."""
        unknown = {each.name: each for each in folders if each.owner is None}
        with contextlib.suppress(TooManyBlocked):  # the owners of the others stay unknown
            for name, seen in self._pool.map(unknown, self._look).items():
                if seen is not None:
                    unknown[name].owner, unknown[name].modified = seen

    def _look(self, name: str) -> tuple[int, float] | None:
        """Return owner and time of change: the whole status of each of 100,000 folders would take 40 MiB more."""
        enter("stat")
        try:
            status = os.lstat(f"{self._path}/{name}")  # a Path takes longer to make than the call
        except OSError:
            return None  # removed in between
        return status.st_uid, status.st_mtime

    def listed(self, now: float) -> dict[str, NamedFolder]:
        """Return them as they are now, Unix seconds.

        Raises:
            OSError: the folder is there and cannot be read.
        """
        began = time.monotonic()
        try:
            with calling(f"stat {self._path}"):
                status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            # Times of files are coarse: two changes in quick succession may have the same one.
            fresh = abs(now - status.st_mtime) < FRESH_SECONDS
            if (seen == self._seen and not fresh) or began < self._not_before:
                return self._names
            self._read()
            self._seen = seen
        except FileNotFoundError:
            self._names, self._seen, self.problems, self.left_out = {}, None, [], 0
        took = time.monotonic() - began
        self._not_before = began + took * (1 + PAUSE_FACTOR) if took > 0.1 else 0.0  # seconds
        return self._names

    def _read(self) -> None:
        self.problems, self.left_out = [], 0
        found: list[NamedFolder] = []
        with calling(f"scandir {self._path}"), os.scandir(self._path) as entries:
            for folder in self._folders(entries):
                found.append(folder)
                if len(found) >= 2 * self._most:
                    found = self._kept(found)
        self._names = {each.name: each for each in sorted(self._kept(found), key=lambda each: each.name)}

    def _folders(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[NamedFolder]:
        for entry in entries:
            name = entry.name
            known = self._names.get(name)
            if known is not None:
                yield known
            elif not name.startswith(".") and _may_be_folder(entry):
                try:
                    yield NamedFolder(check_run_id(name))
                except InvalidRunId as error:
                    if len(self.problems) < MAX_PROBLEMS:
                        self.problems.append(RecordProblem(INVALID_NAME, name, str(error)))

    def _kept(self, found: list[NamedFolder]) -> list[NamedFolder]:
        kept = self.newest(found, self._most)
        self.left_out += len(found) - len(kept)
        return kept


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link. A link is not followed here: its target may not answer."""
    try:
        return entry.is_symlink() or entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
