"""Ports on loopback for services that are started later."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

# Where a free port is sought; Ray's workers take theirs from 10002 to 19999.
_FROM, _TO = 20_000, 65_536
_ENOUGH = 1_000
_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortBusy(Exception):
    """A port that was asked for is taken; the message names the option and the port."""


def ports(wanted: Mapping[str, int]) -> dict[str, int]:
    """By option: the port wanted, checked to be free on loopback, or any free one for 0. Raises PortBusy."""
    found: dict[str, int] = {}
    for option, number in wanted.items():
        if number and number in found.values():
            message = f"{option} {number}: another option has it already; name a free port, or 0 for any"
            raise PortBusy(message)
        if number:
            try:
                _try(number)
            except OSError as error:
                message = f"{option} {number}: {error.strerror}; name a free port, or 0 for any"
                raise PortBusy(message) from None
        found[option] = number
    free = iter(free_ports(len(wanted), without=found.values()))
    return {option: number or next(free) for option, number in found.items()}


def free_ports(count: int, *, without: Collection[int] = ()) -> list[int]:
    """Ports that nobody has, and that the kernel gives to nobody's connection before their servers start."""
    candidates = [number for number in _candidates() if number not in without]
    random.shuffle(candidates)
    return list(itertools.islice(filter(_is_free, candidates), count))


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _candidates() -> list[int]:
    try:
        first, last = map(int, _KERNELS.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        first, last = 32_768, 60_999  # the kernel's default
    outside = [number for number in range(_FROM, _TO) if not first <= number <= last]
    return outside if len(outside) >= _ENOUGH else list(range(_FROM, _TO))


def _is_free(number: int) -> bool:
    try:
        _try(number)
    except OSError:
        return False
    return True


def _try(number: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", number))
        probe.listen()
