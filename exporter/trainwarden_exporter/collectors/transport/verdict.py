"""Whether a run uses the network that it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.transport.lines import EFA, IB, OFI, SOCKET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Providers of libfabric that are sockets by another name.
_SLOW = frozenset(("tcp", "sockets", "udp", "net"))


@dataclass(frozen=True)
class Fabric:
    """Which fast networks a node has."""

    efa: bool = False
    ib: bool = False


@dataclass(frozen=True)
class Use:
    """A network that a process uses; `local`: the process is on the node whose `Fabric` is known."""

    transport: str
    provider: str
    local: bool


def is_ok(uses: Iterable[Use], fabric: Fabric, asked: Collection[str]) -> bool | None:
    """Whether every process uses a fast network, or there is none to use; None if that cannot be told.

    One that does never hides another that does not.
    """
    uses = list(uses)
    verdicts = [_is_fast(use, fabric, asked) for use in uses]
    if False in verdicts:
        return False
    slow = [use for use, verdict in zip(uses, verdicts, strict=True) if verdict is None and _is_slow(use)]
    if not slow:
        return True if True in verdicts else None
    if True in verdicts or fabric.efa or fabric.ib or not {EFA, OFI, IB}.isdisjoint(asked):
        return False
    # Of another node it is not known what it has.
    return True if all(use.local for use in slow) else None


def _is_slow(use: Use) -> bool:
    return use.transport == SOCKET or (use.transport == OFI and not _SLOW.isdisjoint(use.provider.split(";")))


def _is_fast(use: Use, fabric: Fabric, asked: Collection[str]) -> bool | None:
    """Whether this is a fast network; False for one that passes by a better one; None where it is not known."""
    if use.transport in (EFA, IB):
        return True
    if use.transport == OFI and use.provider:
        if (fabric.efa and use.local) or EFA in asked:
            return False
        return None if _is_slow(use) else True
    return None
