"""The NVLinks of one GPU: which are up, and the errors of all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.nvml.fields import FieldValues

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.collectors.gpu.nvml.fields import FieldKey
    from trainwarden_exporter.core.metric import Families

# Fields that NVML sums up over the links of a GPU until Ampere, and those that Hopper counts for each link.
TOTALS = {(38, 0): "crc_flit", (45, 0): "crc_data", (52, 0): "replay", (59, 0): "recovery", (160, 0): "ecc_data"}
PER_LINK = {161: "replay", 162: "recovery", 163: "crc"}
MAX_LINKS = 18


class NvLinks:
    """Reads the links of one GPU; for one thread."""

    def __init__(self, calls: DriverCalls) -> None:
        self._calls = calls
        links = [(field, link) for field in PER_LINK for link in range(MAX_LINKS)]
        self._fields = FieldValues(calls, [*TOTALS, *links])
        # The last count of each link: one that stops answering must not make the counter, their sum, smaller.
        self._counts: dict[FieldKey, float] = {}

    def add_to(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        any_link = False
        for link in range(MAX_LINKS):
            up = self._calls.call("nvmlDeviceGetNvLinkState", link)
            if up is not None:
                any_link = True
                families.add(metrics.GPU_NVLINK_UP, up == pynvml.NVML_FEATURE_ENABLED, **gpu, link=str(link))
        if not any_link:
            return
        fields = self._fields.read()
        self._counts.update({key: value for key, value in fields.items() if key not in TOTALS})
        sums: dict[str, float] = {}
        for (field, _), value in self._counts.items():
            sums[PER_LINK[field]] = sums.get(PER_LINK[field], 0.0) + value
        sums.update({TOTALS[key]: value for key, value in fields.items() if key in TOTALS})
        for error, value in sums.items():
            families.add(metrics.GPU_NVLINK_ERRORS_TOTAL, value, **gpu, error=error)
