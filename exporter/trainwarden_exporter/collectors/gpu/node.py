"""What the GPUs of one vendor do together: a few series of a node, for rules and for overviews of many nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.core.metric import Families


@dataclass(frozen=True)
class Reading:
    """The last good sample of a GPU; None where it does not say. Ratio 0..1, watts, degrees Celsius, bytes."""

    utilization: float | None = None
    power: float | None = None
    temperature: float | None = None
    memory_used: float | None = None


def add_node(families: Families, vendor: str, readings: Sequence[Reading], down: int | None) -> None:
    """Add the aggregates over the GPUs that answer; `down` GPUs do not; None: not known."""
    utilization = [reading.utilization for reading in readings if reading.utilization is not None]
    for stat, value in _stats(utilization).items():
        families.add(metrics.GPU_NODE_UTILIZATION_RATIO, value, vendor=vendor, stat=stat)
    power = [reading.power for reading in readings if reading.power is not None]
    for stat, value in {**_stats(power), **({"sum": math.fsum(power)} if power else {})}.items():
        families.add(metrics.GPU_NODE_POWER_WATTS, value, vendor=vendor, stat=stat)
    temperatures = [reading.temperature for reading in readings if reading.temperature is not None]
    families.add(metrics.GPU_NODE_TEMPERATURE_CELSIUS, max(temperatures, default=None), vendor=vendor, stat="max")
    memory = [reading.memory_used for reading in readings if reading.memory_used is not None]
    families.add(metrics.GPU_NODE_MEMORY_USED_BYTES, sum(memory) if memory else None, vendor=vendor)
    families.add(metrics.GPU_NODE_DEVICES_DOWN, down, vendor=vendor)


def _stats(values: Sequence[float]) -> dict[str, float]:
    # fsum: the sum of ratios in the last digit too, whichever Python adds them up (from 3.12 on sum() compensates).
    return {"min": min(values), "avg": math.fsum(values) / len(values), "max": max(values)} if values else {}
