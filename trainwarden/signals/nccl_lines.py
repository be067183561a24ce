"""The lines about networks that NCCL, RCCL and the OFI plugin print with NCCL_DEBUG=INFO: which process uses which.

    host:pid:tid [device] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
    host:pid:tid [device] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
    host:pid:tid [device] NCCL INFO Using network AWS Libfabric

Launchers print a prefix of their own before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EFA, OFI, IB, SOCKET, OTHER = "efa", "ofi", "ib", "socket", "other"
_MAX_PROVIDERS = 4

_LINE = re.compile(rb"NCCL INFO ([^\r\n]{1,400})")
_ORIGIN = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):([0-9]{1,10}):[0-9]{1,10} (?:\[[^\]]{0,8}\] )?$")
_BEFORE = 400
_PROVIDER = re.compile(rb"NET/OFI Selected [Pp]rovider is ([A-Za-z0-9_;.-]{1,64})")
# `_USED`: printed for each communicator, so for what is used; `_COULD`: printed for what could be.
_USED = re.compile(rb"Using network (.{1,40})|Assigned NET plugin (.{1,40}) to comm|.* via NET/([^/]{1,40})/\d")
_COULD = re.compile(rb"NET/(IB|Socket)\w* ?: Using ")
_PROVIDER_LABEL = re.compile(r"[a-z0-9_;.-]{1,32}")


@dataclass(frozen=True)
class NcclLine:
    """One line of one process: the network it uses, one that it could use, or the OFI provider; else empty."""

    host: str
    pid: int
    used: str = ""
    could: str = ""
    provider: str = ""


@dataclass(frozen=True)
class ProcessNetworks:
    """What all lines of one process show. Of thousands of processes nearly all show the same: they may share one."""

    used: frozenset[str] = frozenset()
    could: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()

    def with_line(self, line: NcclLine) -> ProcessNetworks:
        """Return what is shown with one more line; the same object if that is no more."""
        used, could = self.used | ({line.used} - {""}), self.could | ({line.could} - {""})
        providers = self.providers
        if line.provider and len(providers) < _MAX_PROVIDERS:
            providers = providers | {line.provider}
        more = ProcessNetworks(used, could, providers)
        return self if more == self else more

    @property
    def networks(self) -> set[tuple[str, str]]:
        """Return (transport, provider) of each network that the process uses; only OFI has a provider."""
        used = set(self.used)
        if not used:
            # In this order: old versions of NCCL probe sockets first and then use what is better.
            could = OFI if self.providers else next((name for name in (IB, SOCKET) if name in self.could), None)
            used = {could} if could else set()
        found = {(name, "") for name in used if name != OFI}
        if OFI in used:
            found |= {(EFA if name == EFA else OFI, name) for name in self.providers or {""}}
        return found


def parse_lines(data: bytes) -> Iterator[NcclLine]:
    """Yield the lines that name a network, out of whole lines."""
    for match in _LINE.finditer(data):
        text = match[1]
        if b"NET" not in text and b"network" not in text:
            continue
        found = _parse(text)
        if found:
            start = max(data.rfind(b"\n", 0, match.start()) + 1, match.start() - _BEFORE)
            origin = _ORIGIN.search(data, start, match.start())
            host, pid = (origin[1].decode().lower(), int(origin[2])) if origin else ("", 0)
            yield NcclLine(host.partition(".")[0], pid, **found)


def networks_of(data: bytes) -> set[tuple[str, str]]:
    """Return (transport, provider) of each network that some process uses, by whole lines of all of them."""
    processes: dict[tuple[str, int], ProcessNetworks] = {}
    for line in parse_lines(data):
        key = line.host, line.pid
        processes[key] = processes.get(key, ProcessNetworks()).with_line(line)
    return {network for process in processes.values() for network in process.networks}


def slowest(networks: set[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the network that counts: one process that has fallen back to TCP holds all others up. None of none."""
    order = (SOCKET, OFI, OTHER, IB, EFA)
    return min(networks, key=lambda network: (order.index(network[0]), network[1]), default=None)


def transport_of(name: str) -> str:
    """Return the transport of a network, by the name that NCCL prints."""
    name = name.lower()
    if "socket" in name:
        return SOCKET
    if "libfabric" in name or "ofi" in name:
        return OFI
    return IB if name.startswith("ib") else OTHER


def _parse(text: bytes) -> dict[str, str]:
    if provider := _PROVIDER.match(text):
        name = provider[1].decode().lower().rstrip(".")
        # Layered providers: efa;ofi_rxr is EFA.
        name = EFA if EFA in name.split(";") else name
        return {"provider": name if _PROVIDER_LABEL.fullmatch(name) else OTHER}
    if could := _COULD.match(text):
        return {"could": transport_of(could[1].decode())}
    if used := _USED.match(text):
        name = next(group for group in used.groups() if group)
        return {"used": transport_of(name.decode("ascii", "replace"))}
    return {}
