"""What NCCL, RCCL and the OFI plugin print about the network, with NCCL_DEBUG=INFO: which process uses which.

    host:pid:tid [device] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
    host:pid:tid [device] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
    host:pid:tid [device] NCCL INFO Using network AWS Libfabric

Launchers put their own marks before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EFA, OFI, IB, SOCKET, OTHER = "efa", "ofi", "ib", "socket", "other"
_MAX_PROVIDERS = 4

_LINE = re.compile(rb"NCCL INFO ([^\r\n]{1,400})")
_WHO = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):([0-9]{1,10}):[0-9]{1,10} (?:\[[^\]]{0,8}\] )?$")
_BEFORE = 400
_PROVIDER = re.compile(rb"NET/OFI Selected [Pp]rovider is ([A-Za-z0-9_;.-]{1,64})")
# Said of each communicator, so of what is used; what follows is only said of what could be.
_USED = re.compile(rb"Using network (.{1,40})|Assigned NET plugin (.{1,40}) to comm|.* via NET/([^/]{1,40})/\d")
_COULD = re.compile(rb"NET/(IB|Socket)\w* ?: Using ")
_PROVIDER_LABEL = re.compile(r"[a-z0-9_;.-]{1,32}")


@dataclass(frozen=True)
class Said:
    """What one line says of a process: the network it uses, one it could use, or the OFI provider; else empty."""

    host: str
    pid: int
    used: str = ""
    could: str = ""
    provider: str = ""


@dataclass
class Process:
    """What all lines of one process say."""

    used: set[str] = field(default_factory=set)
    could: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)

    def take(self, said: Said) -> None:
        """Take in one more line."""
        if said.used:
            self.used.add(said.used)
        if said.could:
            self.could.add(said.could)
        if said.provider and len(self.providers) < _MAX_PROVIDERS:
            self.providers.add(said.provider)

    @property
    def networks(self) -> set[tuple[str, str]]:
        """Return (transport, provider) of each network that the process uses; the provider is that of OFI."""
        used = self.used
        if not used:
            # In this order: old versions try sockets first, and then use what is better.
            could = OFI if self.providers else next((name for name in (IB, SOCKET) if name in self.could), None)
            used = {could} if could else set()
        found = {(name, "") for name in used if name != OFI}
        if OFI in used:
            found |= {(EFA if name == EFA else OFI, name) for name in self.providers or {""}}
        return found


def read_lines(data: bytes) -> Iterator[Said]:
    """Yield what whole lines say of the network."""
    for match in _LINE.finditer(data):
        text = match[1]
        if b"NET" not in text and b"network" not in text:
            continue
        said = _said(text)
        if said:
            who = _WHO.search(
                data, max(data.rfind(b"\n", 0, match.start()) + 1, match.start() - _BEFORE), match.start()
            )
            host, pid = (who[1].decode().lower(), int(who[2])) if who else ("", 0)
            yield Said(host.partition(".")[0], pid, **said)


def transport_of(name: str) -> str:
    """Return the transport that a network of NCCL is, by the name that it is printed with."""
    name = name.lower()
    if "socket" in name:
        return SOCKET
    if "libfabric" in name or "ofi" in name:
        return OFI
    return IB if name.startswith("ib") else OTHER


def _said(text: bytes) -> dict[str, str]:
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
