"""What the logs and the environment of one run say of the network it uses."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.record.document import Unreadable
from trainwarden.record.folder import RANKS
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.rank import read_ranks
from trainwarden_exporter.collectors.transport.asked import asked, of_process, of_record
from trainwarden_exporter.collectors.transport.init_log import InitLog
from trainwarden_exporter.collectors.transport.lines import Process, read_lines
from trainwarden_exporter.collectors.transport.verdict import Use

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwarden.record.rank import RankBeat
    from trainwarden_exporter.core.exchange import WatchedRun
    from trainwarden_exporter.core.node import Node

MAX_PROCESSES = 65536
# A rank that has been silent for longer may be gone, and its number another process's.
FRESH_SECONDS = 60.0
# Of more, which may be on one shared disk, none is read: rank 0 has put its environment into the record.
MAX_RANKS = 2048
# So often the environment is looked for: ranks write their files a moment after the run begins.
TRIES = 8


class RunTransport:
    """What is known of one run's network.

    Attributes:
        run: as the board has it.
        logs: that are followed, by path.
        over: it has ended, and its logs were read to their end.
    """

    def __init__(self, run: WatchedRun) -> None:
        self.run = run
        self.logs: dict[str, InitLog] = {}
        self.over = False
        self.requested: Counter[str] = Counter()
        self._processes: dict[tuple[str, int], Process] = {}
        self._tries = TRIES
        self._world_size: int | None = None

    def update(self, run: WatchedRun) -> None:
        """Take in what the board says now; a new attempt starts anew."""
        if run.attempt != self.run.attempt:
            self._processes.clear()
            self.requested.clear()
            self._tries, self._world_size = TRIES, None
        self.over = self.over and run.ended and run.attempt == self.run.attempt
        self.run = run

    def follow(self, paths: Iterable[str], roots: Sequence[str], room: int) -> int:
        """Follow these logs, `room` more at most; returns how many are left out."""
        wanted = dict.fromkeys(paths)
        for path in self.logs.keys() - wanted.keys():
            self.logs.pop(path).close()
        new = [path for path in wanted if path not in self.logs and _may_be_there(path)]
        for path in new[:room]:
            self.logs[path] = InitLog(path, roots)
        return len(new[room:])

    def take(self, data: bytes) -> None:
        """Take in lines of a log."""
        for said in read_lines(data):
            key = said.host, said.pid
            if key not in self._processes and len(self._processes) >= MAX_PROCESSES:
                continue
            self._processes.setdefault(key, Process()).take(said)

    def ask(self, node: Node, now: float) -> None:
        """Look what the environment asks for, until it is known."""
        folder = self.run.folder
        if folder is None or self._tries <= 0:
            return
        self._tries -= 1
        metadata = read_metadata(folder)
        if isinstance(metadata, Metadata):
            self._world_size = metadata.world_size
        found = [each for beat in _ranks(folder) if (each := self._of_rank(beat, folder, node, now)) is not None]
        if found:
            self._tries = 0
        elif isinstance(metadata, Metadata):
            found = [of_record(metadata.environment)]
        self.requested = Counter(word for environment in found if (word := asked(environment)))

    def uses(self, host: str) -> Counter[Use]:
        """Return the networks that are used and by how many processes; `host` is this node."""
        short = host.partition(".")[0].lower()
        return Counter(
            Use(transport, provider, local=name == short)
            for (name, _), process in self._processes.items()
            for transport, provider in process.networks
        )

    @property
    def on_one_host(self) -> bool:
        """All ranks are known, and on one host: they name a network, and do not use it."""
        ranks = self._world_size
        return ranks is not None and len(self._processes) >= ranks and len({host for host, _ in self._processes}) == 1

    def close(self) -> None:
        """Let all files go."""
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def _of_rank(self, beat: RankBeat | Unreadable, folder: Path, node: Node, now: float) -> dict[str, str] | None:
        if isinstance(beat, Unreadable) or beat.pid is None or beat.host != node.host or beat.time is None:
            return None
        if (beat.attempt_key or "") != self.run.attempt or abs(now - beat.time) > FRESH_SECONDS:
            return None
        try:
            owner = (folder / RANKS / f"{beat.rank}.json").stat().st_uid
        except OSError:
            return None
        return of_process(node.procfs, beat.pid, owner, beat.rank)


def _may_be_there(path: str) -> bool:
    """Tell whether there may be a log: of one that cannot be looked at, who follows it says why."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _ranks(folder: Path) -> list[RankBeat | Unreadable]:
    try:
        count = sum(1 for _ in itertools.islice((folder / RANKS).iterdir(), MAX_RANKS + 1))
    except OSError:
        return []
    return read_ranks(folder) if count <= MAX_RANKS else []
