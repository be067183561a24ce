"""Read the files of a run's ranks, as far as their number and size allow."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from trainwarden.capabilities import reading_any
from trainwarden.record.crash import is_trace
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import RANKS
from trainwarden.record.rank import holds_ranks, read_ranks

if TYPE_CHECKING:
    from trainwarden.record.rank import HostFile, RankBeat
    from trainwarden_exporter.collectors.runs.limits import RunLimits
    from trainwarden_exporter.core.owned_folder import OwnedFolder

# In sample after sample they have the same names.
_holds_ranks = lru_cache(4096)(holds_ranks)


class RankFiles:
    """Reads the files of a run's ranks, once or again and again.

    Args:
        limits: `rank_files` bounds what is listed, and `rank_bytes` what is read.
        host: whose file is read, beside those of single ranks; the files of all hosts if None.
        most: of so many files or ranks at most any is read; `limits.rank_files` if None.

    Attributes:
        traces: the names of the traces of crashes in the same folder.
    """

    def __init__(self, limits: RunLimits, host: str | None, most: int | None = None) -> None:
        self._limits = limits
        self._host = host
        self._most = limits.rank_files if most is None else most
        self._hosts: dict[str, HostFile] = {}
        self.traces: list[str] = []

    def read(self, files: OwnedFolder) -> list[RankBeat | Unreadable] | Unreadable:
        """Return the ranks of the folder's owner, by rank, then what cannot be read; or why none is read."""
        self.traces = []
        place = files.path_of(RANKS)
        try:
            descriptor = files.open_folder(RANKS)
        except NotADirectoryError:
            return Unreadable(place, "is no folder")
        except OSError as error:
            return Unreadable(place, error.strerror or str(error))
        try:
            with reading_any():
                return self._read(files, place, descriptor)
        except OSError as error:
            return Unreadable(place, error.strerror or str(error))
        finally:
            os.close(descriptor)

    def _read(self, files: OwnedFolder, place: str, descriptor: int) -> list[RankBeat | Unreadable] | Unreadable:
        limits, names, listed, size = self._limits, [], 0, 0
        with os.scandir(descriptor) as entries:
            for entry in entries:
                listed += 1
                if listed > limits.rank_files:
                    return Unreadable(place, f"holds more than {limits.rank_files} files")
                if _holds_ranks(entry.name, self._host):
                    names.append(entry.name)
                    size += entry.stat(follow_symlinks=False).st_size
                elif is_trace(entry.name):
                    self.traces.append(entry.name)
        for gone in self._hosts.keys() - set(names):
            del self._hosts[gone]
        if len(names) > self._most:
            return Unreadable(place, f"holds the files of more than {self._most} ranks")
        if size > limits.rank_bytes:
            return Unreadable(place, f"holds more than {limits.rank_bytes} bytes")
        files.may_read(size)
        names.sort()
        found = read_ranks(files.path, names=names, limit=self._most, hosts=self._hosts, descriptor=descriptor)
        if len(found) > self._most:
            return Unreadable(place, f"holds more than {self._most} ranks")
        owner = files.owner
        return [each for each in found if isinstance(each, Unreadable) or each.owner == owner]
