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


def read_rank_files(
    files: OwnedFolder,
    limits: RunLimits,
    host: str | None,
    most: int | None = None,
    traces: list[str] | None = None,
    hosts: dict[str, HostFile] | None = None,
) -> list[RankBeat | Unreadable] | Unreadable:
    """Return the ranks of the folder's owner, by rank, then what cannot be read; or why none is read.

    Args:
        files: the folder of the run.
        limits: `rank_files` bounds what is listed, and `rank_bytes` what is read.
        host: whose file is read, beside those of single ranks; the files of all hosts if None.
        most: of so many files or ranks at most any is read; `limits.rank_files` if None.
        traces: takes the names of the traces of crashes in the same folder.
        hosts: what is kept of the files of hosts, by name, if the folder is read again and again.
    """
    place = files.path_of(RANKS)
    try:
        descriptor = files.open_folder(RANKS)
    except NotADirectoryError:
        return Unreadable(place, "is no folder")
    except OSError as error:
        return Unreadable(place, error.strerror or str(error))
    try:
        with reading_any():
            return _read(files, descriptor, limits, host, limits.rank_files if most is None else most, traces, hosts)
    except OSError as error:
        return Unreadable(place, error.strerror or str(error))
    finally:
        os.close(descriptor)


def _read(
    files: OwnedFolder,
    descriptor: int,
    limits: RunLimits,
    host: str | None,
    most: int,
    traces: list[str] | None,
    hosts: dict[str, HostFile] | None,
) -> list[RankBeat | Unreadable] | Unreadable:
    """Do so with the open folder of ranks; raise `OSError` if it cannot be listed."""
    place = files.path_of(RANKS)
    listed = size = 0
    names = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            listed += 1
            if listed > limits.rank_files:
                return Unreadable(place, f"holds more than {limits.rank_files} files")
            if _holds_ranks(entry.name, host):
                names.append(entry.name)
                size += entry.stat(follow_symlinks=False).st_size
            elif traces is not None and is_trace(entry.name):
                traces.append(entry.name)
    if hosts:
        for gone in hosts.keys() - set(names):
            del hosts[gone]
    if len(names) > most:
        return Unreadable(place, f"holds the files of more than {most} ranks")
    if size > limits.rank_bytes:
        return Unreadable(place, f"holds more than {limits.rank_bytes} bytes")
    files.may_read(size)
    found = read_ranks(files.path, names=sorted(names), limit=most, hosts=hosts, descriptor=descriptor)
    if len(found) > most:
        return Unreadable(place, f"holds more than {most} ranks")
    owner = files.owner
    return [each for each in found if isinstance(each, Unreadable) or each.owner == owner]
