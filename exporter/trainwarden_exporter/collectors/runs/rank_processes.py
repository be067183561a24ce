"""The states of the processes of this host's ranks, from procfs."""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.runs.limits import fair_share
from trainwarden_exporter.core.process_files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden.record.rank import RankBeat

ALIVE, DISK_SLEEP, STOPPED, ZOMBIE, GONE = "alive", "disk_sleep", "stopped", "zombie", "gone"
# By the letter in /proc/<pid>/stat.
_STATES = {b"D": DISK_SLEEP, b"T": STOPPED, b"t": STOPPED, b"Z": ZOMBIE, b"X": GONE, b"x": GONE}
# Processes that are looked at in one sample, of each user those first whose state is oldest: a node has some ranks, not
# thousands.
MAX_READS = 256
# Of the namespace in which all pids of the host are, in every kernel.
_INITIAL_NAMESPACE = 0xEFFFFFFC


class _Process(NamedTuple):
    """A process as a rank's record states it."""

    pid: int
    start: int
    owner: int | None


_owner = operator.attrgetter("owner")


class RankProcesses:
    """Looks at the processes of ranks that run on this host.

    A process counts only where pid and start are those of the record, the record's owner runs it, and its pid is one of
    this procfs: in most containers it is none.

    Args:
        procfs: where it is mounted.
        host: this host's name in records.
    """

    def __init__(self, procfs: Path, host: str) -> None:
        self._procfs = procfs
        self._host = host
        self._namespace: int | None = None
        self._states: dict[_Process, str | None] = {}
        # When each was looked at, counted in samples.
        self._looked_at: dict[_Process, int] = {}
        self._sample = 0

    def look(self, beats: Iterable[RankBeat]) -> None:
        """Look at the processes of these ranks, of many at a part of them."""
        self._sample += 1
        wanted = {process for beat in beats if (process := self._process(beat)) is not None}
        self._states = {process: state for process, state in self._states.items() if process in wanted}
        self._looked_at = {process: at for process, at in self._looked_at.items() if process in wanted}
        if len(wanted) > MAX_READS:
            # Of each user a share: one whose ranks are others in each sample keeps nobody else's from being looked at.
            wanted = set(fair_share(wanted, MAX_READS, _owner, lambda each: self._looked_at.get(each, 0))[0])
        sees_all = bool(wanted) and self._is_readable("1")
        for process in wanted:
            self._states[process] = self._state(process, sees_all=sees_all)
            self._looked_at[process] = self._sample

    def state(self, beat: RankBeat) -> str | None:
        """Return the state of a rank's process as it was seen last; None where it is unknown."""
        process = self._process(beat)
        return None if process is None else self._states.get(process)

    def _process(self, beat: RankBeat) -> _Process | None:
        """Return the process to look at; None for a rank of another host, or one that has recorded its end."""
        if not beat.pid or beat.host != self._host or beat.status not in (None, "running"):
            return None
        if beat.process_start is None or beat.pid_namespace is None:
            return None
        if self._namespace is None:
            self._namespace = pid_namespace(self._procfs)
        if beat.pid_namespace != self._namespace:
            return None
        return _Process(beat.pid, beat.process_start, beat.owner)

    def _state(self, process: _Process, *, sees_all: bool) -> str | None:
        path = f"{self._procfs}/{process.pid}"
        try:
            # The second field is the program's name, which may hold spaces and brackets.
            fields = read_file(f"{path}/stat", 4096).rpartition(b")")[2].split()
            state, start = fields[0], int(fields[19])
            if start != process.start:
                return GONE
            # Another's process shows no more to the owner of a record than it would without the exporter.
            owner = os.stat(path).st_uid  # noqa: PTH116  # a Path for each would cost more than the call
        except (FileNotFoundError, ProcessLookupError):
            # Where procfs hides the processes of others, another's is no evidence.
            return GONE if sees_all or process.owner == os.geteuid() else None
        except (OSError, IndexError, ValueError):
            return None
        return _STATES.get(state, ALIVE) if process.owner in (None, owner) else None

    def _is_readable(self, pid: str) -> bool:
        try:
            return bool(read_file(f"{self._procfs}/{pid}/stat", 1))
        except OSError:
            return False


def pid_namespace(procfs: Path) -> int | None:
    """Return the number of the namespace whose pids a procfs shows; None where that cannot be seen."""
    try:
        for line in (procfs / "self/status").read_bytes().splitlines():
            if line.startswith(b"NSpid:") and len(line.split()) == 2:
                # The procfs is that of this process's own namespace.
                return os.stat(procfs / "self/ns/pid").st_ino  # noqa: PTH116  # for its number
        # A container with the host's procfs: only there is the second process a thread of the kernel.
        if (procfs / "2/comm").read_bytes().strip() == b"kthreadd":
            return _INITIAL_NAMESPACE
        return os.stat(procfs / "1/ns/pid").st_ino  # noqa: PTH116  # as above
    except OSError:
        return None
