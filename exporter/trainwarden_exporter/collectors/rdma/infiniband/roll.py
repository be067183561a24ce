"""Which devices a node shows now, and which it has shown before: one that vanished stays in sight."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainwarden_exporter.collectors.rdma.infiniband.devices import RdmaDevice


class Roll:
    """Devices by name, and whether each is there. A slot of the PCI bus has one name: its last."""

    def __init__(self) -> None:
        self._slots: dict[str, str] = {}  # of each name
        self._here: set[str] = set()

    def call(self, devices: Iterable[RdmaDevice]) -> set[str]:
        """Take in which devices are there now; returns the names of those that have gone since."""
        now = {device.name: device.pci_bus_id for device in devices}
        gone = self._here - now.keys()
        self._here = set(now)
        taken = {slot for slot in now.values() if slot}
        # Loaded anew, a driver may give its devices other names.
        self._slots = {name: slot for name, slot in self._slots.items() if name in now or slot not in taken} | now
        return gone

    @property
    def up(self) -> Mapping[str, bool]:
        """Whether each device that is known is there."""
        return {name: name in self._here for name in sorted(self._slots)}
