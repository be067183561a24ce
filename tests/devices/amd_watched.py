"""The collector of AMD GPUs in the process of a test, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trainwarden_exporter.collectors.gpu.amdsmi.driver import AmdsmiDriver
from trainwarden_exporter.collectors.gpu.collector import GpuCollector
from trainwarden_exporter.collectors.gpu.driver import DriverUnavailable
from trainwarden_exporter.collectors.gpu.roster import Roster
from trainwarden_exporter.core.exposition import encode_text

if TYPE_CHECKING:
    from tests.devices.amd import AmdMachine


class Watched:
    """A collector and what it says. Each `look` looks once, then takes one sample of each part."""

    def __init__(self, machine: AmdMachine, **settings: Any) -> None:
        defaults = {"interval": 5.0, "slow_interval": 0.0, "timeout": 2.0, "expected": None, "by_bus": True}
        self.machine = machine
        driver = AmdsmiDriver(machine.sysfs, retry_seconds=0.0)
        self.collector = GpuCollector(driver, Roster(), sysfs=machine.sysfs, **(defaults | settings))
        self.errors: list[str] = []

    def look(self) -> dict[str, float]:
        self.errors = []
        self.collector.collect()
        page: dict[str, float] = {}
        parts = sorted(self.collector.tasks(), key=lambda part: (part.tier == "node", part.tier != "fast"))
        for part in parts:
            try:
                text = encode_text(part.read()).decode()
            except DriverUnavailable as error:
                self.errors.append(error.error)
                continue
            lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
            assert not page.keys() & {name for name, _ in lines}, "no series twice"
            page.update((name, float(value)) for name, value in lines)
        return page

    def node(self) -> str:
        """Return the series of the node, which waits for the first sample of each GPU."""
        task = next(task for task in self.collector.tasks() if task.tier == "node")
        return encode_text(task.read()).decode()


class Watch(Protocol):
    """Begins to watch the machine of a test."""

    def __call__(self, **settings: Any) -> Watched:
        """Settings are those of the collector."""
