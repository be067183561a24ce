"""Ports on loopback for services that are started later."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# The range of free ports; Ray's workers use 10002 to 19999.
_FROM, _TO = 20_000, 65_536
_ENOUGH = 1_000
_TRIES = 1_000
_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortBusy(Exception):
    """A requested port is taken; the message names the option and the port."""


def ports(wanted: Mapping[str, int], candidates: Sequence[int] | None = None) -> dict[str, int]:
    """Return a port for each option: the requested one, if free on loopback, or a free one of `candidates` for 0.

    Raises:
        PortBusy: a requested port is taken, or there are not enough free ones.
    """
    found: dict[str, int] = {}
    for option, number in wanted.items():
        if number and number in found.values():
            message = f"{option} {number}: another option has it already; name a free port, or 0 for any"
            raise PortBusy(message)
        if number:
            try:
                _try("127.0.0.1", number)
            except OSError as error:
                message = f"{option} {number}: {error.strerror}; name a free port, or 0 for any"
                raise PortBusy(message) from None
        found[option] = number
    free = iter(free_ports(list(found.values()).count(0), candidates, without=found.values()))
    return {option: number or next(free) for option, number in found.items()}


def free_ports(count: int, candidates: Sequence[int] | None = None, *, without: Collection[int] = ()) -> list[int]:
    """Return free ports.

    Args:
        count: how many.
        candidates: to choose from; if None, those outside the range that the kernel uses for outgoing connections.
        without: ports not to choose.

    Raises:
        PortBusy: there are not enough.
    """
    candidates = _candidates() if candidates is None else candidates
    found: list[int] = []
    for number in random.sample(candidates, min(len(candidates), count + _TRIES)):
        if len(found) == count:
            break
        if number not in without and _is_free(number):
            found.append(number)
    if len(found) < count:
        message = f"no {count} free ports were found from {_FROM} on"
        raise PortBusy(message)
    return found


def free_port() -> int:
    """Return one of `free_ports`."""
    return free_ports(1)[0]


def _candidates() -> Sequence[int]:
    try:
        first, last = map(int, _KERNELS.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        first, last = 32_768, 60_999  # the kernel's default
    outside = [number for number in range(_FROM, _TO) if not first <= number <= last]
    return outside if len(outside) >= _ENOUGH else range(_FROM, _TO)


def _is_free(number: int) -> bool:
    try:
        _try("", number)  # on any address of this machine
    except OSError:
        return False
    return True


def _try(host: str, number: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, number))
