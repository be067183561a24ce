"""The NVLinks of one GPU: which are up, and what went wrong on all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.nvidia.fields import Fields

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.nvidia.calls import Calls
    from trainwarden_exporter.core.metric import Families

# What NVML sums up over the links of a GPU until Ampere, and what Hopper counts for each link by itself.
TOTALS = {(38, 0): "crc_flit", (45, 0): "crc_data", (52, 0): "replay", (59, 0): "recovery", (160, 0): "ecc_data"}
PER_LINK = {161: "replay", 162: "recovery", 163: "crc"}
MAX_LINKS = 18


class Links:
    """Reads the links of one GPU; for one thread."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        links = [(field, link) for field in PER_LINK for link in range(MAX_LINKS)]
        self._fields = Fields([*TOTALS, *links])
        # The last count of each link, for one that is silent must not make their sum smaller: it is a counter.
        self._counts: dict[tuple[int, int], float] = {}

    def read(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        any_link = False
        for link in range(MAX_LINKS):
            up = self._calls.ask("nvmlDeviceGetNvLinkState", link)
            families.add(
                metrics.GPU_NVLINK_UP, None if up is None else up == pynvml.NVML_FEATURE_ENABLED, link=str(link), **gpu
            )
            any_link = any_link or up is not None
        if not any_link:
            return
        fields = self._fields.read(self._calls)
        self._counts.update({key: value for key, value in fields.items() if key not in TOTALS})
        sums: dict[str, float] = {}
        for (field, _), value in self._counts.items():
            sums[PER_LINK[field]] = sums.get(PER_LINK[field], 0.0) + value
        sums.update({TOTALS[key]: value for key, value in fields.items() if key in TOTALS})
        for error, value in sums.items():
            families.add(metrics.GPU_NVLINK_ERRORS_TOTAL, value, error=error, **gpu)
