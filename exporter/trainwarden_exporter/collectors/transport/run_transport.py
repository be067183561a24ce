"""The networks of one run: what its logs and environment show, and whether they are the fast ones."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwarden.record.document import Unreadable
from trainwarden.record.metadata import Metadata
from trainwarden.signals.nccl_lines import EFA, IB, OFI, OTHER, SOCKET, ProcessNetworks, parse_lines
from trainwarden_exporter.collectors.runs.documents import MetadataReader
from trainwarden_exporter.collectors.runs.limits import DEFAULT_LIMITS
from trainwarden_exporter.collectors.runs.rank_files import RankFiles
from trainwarden_exporter.collectors.transport.environment import of_process, of_record, requested_network
from trainwarden_exporter.core.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trainwarden.record.rank import RankBeat
    from trainwarden.signals.nccl_lines import NcclLine
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.shared_state import WatchedRun

# Of a run, and of all runs of one user.
MAX_PROCESSES, MAX_PROCESSES_OF_USER = 16384, 65536
# Names of providers in one run; the others are one.
MAX_PROVIDERS = 8
# Bytes kept of a line that is not complete; the lines of NCCL are shorter.
MAX_LINE = 2048
# Logs of one run of which such a line is kept, those that were read last.
MAX_RESTS = 1024
# The process of a rank that has been silent for longer may be gone, and its number reused.
FRESH_SECONDS = 60.0
# Files of more ranks, perhaps on one shared disk, are not read: rank 0 has put its environment into the record.
MAX_RANKS = 2048
# How often the environment is looked for: ranks write their files a moment after the run begins.
TRIES = 8
# Providers of libfabric that use sockets.
_SLOW_PROVIDERS = frozenset(("tcp", "sockets", "udp", "net"))


@dataclass(frozen=True)
class Fabric:
    """Which fast networks a node has."""

    efa: bool = False
    ib: bool = False


@dataclass(frozen=True)
class NetworkUse:
    """A network that a process uses; `local`: the process is on the node whose `Fabric` is known."""

    transport: str
    provider: str
    local: bool


class RunTransport:
    """The networks of one attempt. `update` and `feed` run in the log reader's threads, the rest in the collector's.

    Attributes:
        run: as the log reader described it last.
        requested: how many processes ask for each network in their environment.
    """

    def __init__(self, run: WatchedRun) -> None:
        self.run = run
        self.requested: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._processes: dict[tuple[str, int], ProcessNetworks] = {}
        self._shared: dict[ProcessNetworks, ProcessNetworks] = {}
        self._providers: set[str] = set()
        self._rests: dict[str, bytes] = {}  # by source
        self._tries = TRIES
        self._world_size: int | None = None

    def update(self, run: WatchedRun) -> None:
        """Take the run as it is described now; forget everything if another attempt owns it."""
        with self._lock:
            if run.attempt != self.run.attempt:
                self._processes.clear()
                self._shared.clear()
                self._providers.clear()
                self._rests.clear()
                self.requested = Counter()
                self._tries, self._world_size = TRIES, None
            self.run = run

    @property
    def processes(self) -> int:
        """How many processes are known."""
        return len(self._processes)

    def feed(self, source: str, data: bytes, room: int) -> int:
        """Take the next bytes of one of the run's logs; keep what follows the last line end for the next time.

        Of new processes no more are taken than there is room for; return how many were.
        """
        new = 0
        with self._lock:
            data = self._rests.pop(source, b"") + data
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if rest := data[end:][-MAX_LINE:]:
                self._rests[source] = rest
                if len(self._rests) > MAX_RESTS:
                    del self._rests[next(iter(self._rests))]
        data = data[:end]
        for line in parse_lines(data):
            with self._lock:
                new += self._add(line, has_room=new < room)
        return new

    def _add(self, line: NcclLine, *, has_room: bool) -> bool:
        """Add one line; return whether its process is new."""
        key = line.host, line.pid
        known = self._processes.get(key)
        if known is None and (not has_room or len(self._processes) >= MAX_PROCESSES):
            return False
        if line.provider and line.provider not in self._providers:
            if len(self._providers) < MAX_PROVIDERS:
                self._providers.add(line.provider)
            else:
                line = replace(line, provider=OTHER)
        shown = (known or ProcessNetworks()).with_line(line)
        self._processes[key] = self._shared.setdefault(shown, shown)
        return known is None

    @property
    def needs_environment(self) -> bool:
        """What the environment asks for is not known yet and may still be found."""
        return self.run.folder is not None and self._tries > 0

    def read_environment(self, node: Node, now: float) -> None:
        """Read which networks the environment asks for, until it is known; may block in the record's file system."""
        run = self.run
        if run.folder is None:
            return
        self._tries -= 1
        try:
            with OwnedFolder.opened(run.folder) as files:
                metadata = MetadataReader(DEFAULT_LIMITS.file_bytes)(files)
                ranks = RankFiles(DEFAULT_LIMITS, node.host, MAX_RANKS).read(files)
        except OSError:
            return
        beats = [] if isinstance(ranks, Unreadable) else ranks
        found = [each for beat in beats if (each := _environment_of_rank(beat, run, node, now)) is not None]
        known = bool(found)
        if not found and isinstance(metadata, Metadata):
            found = [of_record(metadata.environment)]
        requested = Counter(network for environment in found if (network := requested_network(environment)))
        with self._lock:
            if run.attempt == self.run.attempt:
                self.requested = requested
                self._tries = 0 if known else self._tries
                if isinstance(metadata, Metadata):
                    self._world_size = metadata.world_size

    def uses(self, host: str) -> Counter[NetworkUse]:
        """Return the networks in use and the number of processes on each; `host` is this node's name."""
        short = host.partition(".")[0].lower()
        with self._lock:
            return Counter(
                NetworkUse(transport, provider, local=name == short)
                for (name, _), process in self._processes.items()
                for transport, provider in process.networks
            )

    @property
    def on_one_host(self) -> bool:
        """All ranks are known and on one host: they name a network and do not use it."""
        with self._lock:
            hosts = {host for host, _ in self._processes}
            return self._world_size is not None and len(self._processes) >= self._world_size and len(hosts) == 1


def is_ok(uses: Iterable[NetworkUse], fabric: Fabric, requested: Collection[str]) -> bool | None:
    """Return whether every process uses a fast network, or there is none to use; None if that is not known.

    A process that does never hides one that does not.
    """
    uses = list(uses)
    verdicts = [_is_fast(use, fabric, requested) for use in uses]
    if False in verdicts:
        return False
    slow = [use for use, verdict in zip(uses, verdicts, strict=True) if verdict is None and _is_slow(use)]
    if not slow:
        return True if True in verdicts else None
    if True in verdicts or fabric.efa or fabric.ib or not {EFA, OFI, IB}.isdisjoint(requested):
        return False
    # The networks of other nodes are not known.
    return True if all(use.local for use in slow) else None


def _is_slow(use: NetworkUse) -> bool:
    return use.transport == SOCKET or (use.transport == OFI and not _SLOW_PROVIDERS.isdisjoint(use.provider.split(";")))


def _is_fast(use: NetworkUse, fabric: Fabric, requested: Collection[str]) -> bool | None:
    """Return whether this is a fast network; False where a faster one is passed by; None if that is not known."""
    if use.transport in (EFA, IB):
        return True
    if use.transport == OFI and use.provider:
        if (fabric.efa and use.local) or EFA in requested:
            return False
        return None if _is_slow(use) else True
    return None


def _environment_of_rank(beat: RankBeat | Unreadable, run: WatchedRun, node: Node, now: float) -> dict[str, str] | None:
    """Return the environment of a rank's process if it runs on this node now."""
    if isinstance(beat, Unreadable) or beat.pid is None or beat.host != node.host or beat.time is None:
        return None
    if (beat.attempt_key or "") != run.attempt or beat.owner is None or abs(now - beat.time) > FRESH_SECONDS:
        return None
    return of_process(node.procfs, beat.pid, beat.owner, beat.rank)
