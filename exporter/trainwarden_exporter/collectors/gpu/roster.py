"""The GPUs that a node has: each keeps its label while it is away, until the file of the roster is removed."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


log = logging.getLogger(__name__)

MAX_GPUS = 1024
_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_UUID = re.compile(r"[A-Za-z0-9-]{0,96}")
_INFO = frozenset({"model", "serial", "vbios", "driver"})


@dataclass(frozen=True)
class RosterGpu:
    """One GPU of the node.

    Attributes:
        index: its label `gpu`: the place on the bus when it was first seen.
        bus: its address, 0000:3b:00.0.
        uuid: empty until it was opened.
        minor: the number in /dev/nvidia<minor>; None where not known.
        info: the labels of `gpu_info` that are read from an open GPU; empty until it was opened.
    """

    index: int
    bus: str
    uuid: str = ""
    minor: int | None = None
    info: Mapping[str, str] = field(default_factory=dict)


class Roster:
    """The GPUs of one vendor by address. For several threads.

    Args:
        gpus: that are known from before.
    """

    def __init__(self, gpus: Iterable[RosterGpu] = ()) -> None:
        self._lock = threading.RLock()
        self._opened: set[str] = set()  # the addresses at which a GPU was opened
        self._gpus = {gpu.bus: gpu for gpu in gpus}

    @property
    def gpus(self) -> list[RosterGpu]:
        """The GPUs in the order of their labels."""
        with self._lock:
            return sorted(self._gpus.values(), key=lambda gpu: gpu.index)

    def see(self, addresses: Collection[str]) -> None:
        """Add the GPUs at these addresses that are new, in the order of the bus."""
        with self._lock:
            for bus in sorted(set(addresses) - self._gpus.keys()):
                if len(self._gpus) < MAX_GPUS:
                    self._gpus[bus] = RosterGpu(self._next_index(), bus)

    def identify(self, seen: RosterGpu, present: Collection[str]) -> None:
        """Take note of which GPU is at an address, after it was opened.

        An address keeps its label when another GPU is put there. A GPU that is known from an address where there is
        none now has moved, and keeps its label: after the loss of a GPU a firmware may number the bus otherwise.

        Args:
            seen: address, uuid, minor and properties; its index does not count.
            present: the addresses at which there are GPUs now.
        """
        with self._lock:
            here = self._gpus.get(seen.bus)
            if here is None:
                return
            if seen.uuid and here.uuid != seen.uuid:
                here = self._placed(here, seen, present)
            self._opened.add(seen.bus)
            for other in list(self._gpus.values()):
                if other.minor == seen.minor is not None and other.bus != here.bus:
                    self._gpus[other.bus] = replace(other, minor=None)  # the driver gave its number to this one
            self._gpus[here.bus] = replace(
                here, uuid=seen.uuid or here.uuid, minor=seen.minor, info=dict(seen.info) or here.info
            )

    def repartition(self, present: Collection[str]) -> None:
        """Number anew where GPUs were divided into partitions otherwise, which are functions of one PCI device.

        A partition that is gone while its device is there is no loss. Where a device is missing too, all labels stay.

        Args:
            present: the addresses of all GPUs and partitions that there are.
        """
        with self._lock:
            known, now = _functions(self._gpus), _functions(present)
            if known.keys() <= now.keys() and any(known[device] != now[device] for device in known):
                before, self._gpus = self._gpus, {}
                self.see(present)
                for bus in self._gpus.keys() & before.keys():
                    self._gpus[bus] = replace(before[bus], index=self._gpus[bus].index)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the GPUs as a value of JSON."""
        return [asdict(gpu) for gpu in self.gpus]

    def replace_by(self, gpus: Iterable[RosterGpu]) -> None:
        """Replace all GPUs."""
        with self._lock:
            self._gpus = {gpu.bus: gpu for gpu in gpus}

    def _placed(self, here: RosterGpu, seen: RosterGpu, present: Collection[str]) -> RosterGpu:
        """Return the GPU with which the one that was opened goes on."""
        before = next((gpu for gpu in self._gpus.values() if gpu.uuid == seen.uuid), None)
        if before is None:
            if here.uuid:
                log.warning("GPU %s: %s replaces %s", here.bus, seen.uuid, here.uuid)
            return replace(here, info={})
        if before.bus in present:
            if before.bus not in self._opened:  # two changed places: the other is identified when it is opened
                self._gpus[before.bus] = replace(before, uuid="", info={})
            return replace(here, info={})
        log.warning("GPU %s: %s was at %s before; it stays GPU %d", here.bus, seen.uuid, before.bus, before.index)
        del self._gpus[before.bus]
        if here.uuid or here.index < before.index:  # it is away, and the address is another's now
            self._gpus[before.bus] = replace(here, bus=before.bus)
        return replace(before, bus=here.bus)

    def _next_index(self) -> int:
        return max((gpu.index for gpu in self._gpus.values()), default=-1) + 1


class NodeRoster(Roster):
    """The roster of the exporter's own process, which gives it to each child and stores what the child reports.

    Args:
        file: where it is stored.

    Attributes:
        is_sampled: a collector samples these GPUs and reports them: it alone numbers them.
    """

    def __init__(self, file: StateFile | None = None) -> None:
        super().__init__()
        self._file = file or StateFile(None)
        self.is_sampled = False
        self._load()

    def see(self, addresses: Collection[str]) -> None:
        """Add the GPUs at these addresses that are new, and store them."""
        before = self.gpus
        super().see(addresses)
        if self.gpus != before:
            self._store()

    def identify(self, seen: RosterGpu, present: Collection[str]) -> None:
        """Take note of which GPU is at an address, and store it."""
        before = self.gpus
        super().identify(seen, present)
        if self.gpus != before:
            self._store()

    def value(self) -> list[dict[str, Any]]:
        """Return the GPUs for a new child; none if the file was removed, so that all are numbered anew."""
        if self._file.was_removed():
            log.info("%s was removed: the GPUs are numbered anew", self._file.path)
            self.replace_by(())
        return self.to_json()

    def keep(self, value: Any) -> None:
        """Take over what a child reports; raises `ValueError` if that is no roster."""
        gpus = roster_gpus(value)
        if gpus != self.gpus:
            self.replace_by(gpus)
            self._store()

    def _load(self) -> None:
        document = self._file.read()
        if document is None:
            return
        try:
            self.replace_by(roster_gpus(document.get("gpus")))
        except ValueError as error:
            self._file.set_aside(str(error))

    def _store(self) -> None:
        self._file.write({"gpus": self.to_json()})


def roster_gpus(value: Any) -> list[RosterGpu]:
    """Return the GPUs that `Roster.to_json` wrote; raises `ValueError` if it did not."""
    if not isinstance(value, list) or len(value) > MAX_GPUS:
        raise ValueError("holds no list of GPUs")
    gpus = [_gpu(entry) for entry in value]
    for what in ("index", "bus"):
        if len({getattr(gpu, what) for gpu in gpus}) != len(gpus):
            raise ValueError(f"holds two GPUs with the same {what}")
    return sorted(gpus, key=lambda gpu: gpu.index)


def _gpu(entry: Any) -> RosterGpu:
    match entry:
        case {
            "index": int(index),
            "bus": str(bus),
            "uuid": str(uuid),
            "minor": int() | None as minor,
            "info": dict(info),
        } if 0 <= index < 2**16 and _BUS.fullmatch(bus) and _UUID.fullmatch(uuid):
            known = {name: value[:256] for name, value in info.items() if name in _INFO and isinstance(value, str)}
            return RosterGpu(index, bus, uuid, minor, known)
    raise ValueError("holds what is no GPU")


def _functions(addresses: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for bus in addresses:
        device, _, function = bus.rpartition(".")
        found.setdefault(device, set()).add(function)
    return found
