"""What the driver writes to the kernel's log when a GPU fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwarden_exporter.collectors.gpu.bus import bus_address

_ADDRESS = r"(?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)"
# With an instance of a divided GPU, the address is followed by it.
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}(?:[ ,][^)]*)?\): (?P<xid>\d{{1,4}})\b")
_FALLEN = re.compile(rf"NVRM: .*?GPU (?:at )?{_ADDRESS}\b.*has fallen off the bus", re.IGNORECASE)
FALLEN_OFF_THE_BUS = 79


@dataclass(frozen=True)
class Xid:
    """One error: the GPU's bus address, its code, and whether the line gave no code but says what code 79 means."""

    bus: str
    code: int
    in_words: bool = False


def parse_xid(text: str) -> Xid | None:
    """Return the error that a line of the kernel's log tells of; None if it tells of none."""
    if "NVRM" not in text:
        return None
    match = _XID.search(text)
    if match is not None:
        bus = bus_address(match["bus"])
        return None if bus is None else Xid(bus, int(match["xid"]))
    match = _FALLEN.search(text)
    bus = bus_address(match["bus"]) if match is not None else None
    return None if bus is None else Xid(bus, FALLEN_OFF_THE_BUS, in_words=True)
