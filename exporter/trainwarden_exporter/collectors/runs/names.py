"""The names in the runs folder, listed when the folder changed; where there are too many, each user's newest."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden_exporter.collectors.runs.limits import fair_share
from trainwarden_exporter.collectors.runs.problems import INVALID_NAME, RecordProblem
from trainwarden_exporter.core.files import FRESH_SECONDS
from trainwarden_exporter.sampling.blocking_io import BlockingIoPool, TooManyBlocked
from trainwarden_exporter.sampling.calls import calling, enter

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

# Beyond any use: so many names only fill the memory.
MAX_NAMES = 20_000
MAX_PROBLEMS = 1000
# A listing that takes longer is done again only after so many times as long.
QUICK_SECONDS = 0.1
PAUSE_FACTOR = 20.0
# So many seconds that are waited for a file system count as one of work.
WAITED_FACTOR = 10.0
_FILTER_BITS = 2**23


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


class NameFilter:
    """Names, in one MiB however many: it holds all that were added, and some in a hundred of 100,000 others."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, name: str) -> None:
        """Add a name."""
        self._bits = self._bits or bytearray(_FILTER_BITS // 8)
        place = hash(name) % _FILTER_BITS
        self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, name: str) -> bool:
        if not self._bits:
            return False
        place = hash(name) % _FILTER_BITS
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


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
        self._not_before = self._whole_not_before = 0.0
        self._is_whole = True
        self._dropped, self._invalid = NameFilter(), NameFilter()
        self.problems: list[RecordProblem] = []
        self.left_out = 0

    def newest(self, folders: list[NamedFolder], most: int, first: Container[str] = ()) -> list[NamedFolder]:
        """Return at most so many of the folders: of each user the newest, those named in `first` before the others."""
        if len(folders) <= most:
            return folders
        return self._share(folders, most, first)[0]

    def _share(
        self, folders: list[NamedFolder], most: int, first: Container[str] = ()
    ) -> tuple[list[NamedFolder], list[NamedFolder]]:
        self.look(folders)
        return fair_share(
            folders,
            most,
            lambda each: -1 if each.owner is None else each.owner,
            lambda each: (each.name not in first, -each.modified),
        )

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
        began, worked = time.monotonic(), time.thread_time()
        try:
            with calling(f"stat {self._path}"):
                status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            # Times of files are coarse: two changes in quick succession may have the same one.
            fresh = abs(now - status.st_mtime) < FRESH_SECONDS
            whole = began >= self._whole_not_before
            is_known = seen == self._seen and not fresh and (self._is_whole or not whole)
            if is_known or began < self._not_before:
                return self._names
            self._read(whole=whole)
            self._seen, self._is_whole = seen, whole
        except FileNotFoundError:
            self._names, self._seen, self.problems, self.left_out = {}, None, [], 0
            whole = True
        took = time.monotonic() - began
        if not whole:
            # A new run waits for the next: what counts is the work, which a unit's quota makes take longer.
            took = max(time.thread_time() - worked, took / WAITED_FACTOR)
        self._not_before = began + took * (1 + PAUSE_FACTOR) if took > QUICK_SECONDS else 0.0
        if whole:
            self._whole_not_before = self._not_before
            self._not_before = 0.0 if self.left_out else self._not_before
        return self._names

    def _read(self, *, whole: bool) -> None:
        """List the folder: as a `whole`, or only what is new beside the names that are kept and those left out."""
        self.left_out = 0
        if whole:
            self.problems, self._dropped, self._invalid = [], NameFilter(), NameFilter()
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
            elif name in self._dropped:
                self.left_out += 1
            elif not name.startswith(".") and name not in self._invalid and _may_be_folder(entry):
                try:
                    yield NamedFolder(check_run_id(name))
                except InvalidRunId as error:
                    self._invalid.add(name)
                    if len(self.problems) < MAX_PROBLEMS:
                        self.problems.append(RecordProblem(INVALID_NAME, name, str(error)))

    def _kept(self, found: list[NamedFolder]) -> list[NamedFolder]:
        if len(found) <= self._most:
            return found
        kept, dropped = self._share(found, self._most)
        self.left_out += len(dropped)
        for each in dropped:
            self._dropped.add(each.name)
        return kept


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link. A link is not followed here: its target may not answer."""
    try:
        return entry.is_symlink() or entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
