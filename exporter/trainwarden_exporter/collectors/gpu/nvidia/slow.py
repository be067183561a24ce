"""What is slow to read, or changes seldom: errors, links, instances."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.nvidia.fields import Fields
from trainwarden_exporter.collectors.gpu.nvidia.mig import add_instances
from trainwarden_exporter.collectors.gpu.nvidia.nvlink import Links
from trainwarden_exporter.collectors.gpu.nvidia.valid import counted, within

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.nvidia.calls import Calls
    from trainwarden_exporter.core.metric import Families

# Two metrics, not two values of a label: the second holds the first, and their sum means nothing.
ECC = {
    (3, 0): (metrics.GPU_ECC_ERRORS_TOTAL, "corrected"),
    (4, 0): (metrics.GPU_ECC_ERRORS_TOTAL, "uncorrected"),
    (5, 0): (metrics.GPU_ECC_LIFETIME_ERRORS_TOTAL, "corrected"),
    (6, 0): (metrics.GPU_ECC_LIFETIME_ERRORS_TOTAL, "uncorrected"),
}
RECOVERY_ACTION = (230, 0)
FABRIC_COMPLETED = 3


class SlowTier:
    """Reads one GPU; for one thread."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._fields = Fields([*ECC, RECOVERY_ACTION])
        self._links = Links(calls)
        self._fabrics = {
            "nvmlDeviceGetGpuFabricInfoV": pynvml.c_nvmlGpuFabricInfoV_t(),
            "nvmlDeviceGetGpuFabricInfo": pynvml.c_nvmlGpuFabricInfo_t(),
        }

    def read(self, families: Families, **gpu: str) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        fields = self._fields.read(self.calls)
        for key, (name, kind) in ECC.items():
            families.add(name, fields.get(key), kind=kind, **gpu)
        families.add(metrics.GPU_RECOVERY_ACTION, within(fields.get(RECOVERY_ACTION), 0, 255), **gpu)
        self._rows(families, gpu)
        self._pcie(families, gpu)
        self._fabric(families, gpu)
        self._links.read(families, gpu)
        add_instances(families, self.calls, gpu)

    def _rows(self, families: Families, gpu: dict[str, str]) -> None:
        rows = self.calls.ask("nvmlDeviceGetRemappedRows")
        if rows is not None:
            corrected, uncorrected, pending, failure = rows
            families.add(metrics.GPU_REMAPPED_ROWS, counted(corrected), cause="corrected", **gpu)
            families.add(metrics.GPU_REMAPPED_ROWS, counted(uncorrected), cause="uncorrected", **gpu)
            families.add(metrics.GPU_REMAPPED_ROWS_PENDING, within(pending, 0, 1), **gpu)
            families.add(metrics.GPU_ROW_REMAP_FAILURE, within(failure, 0, 1), **gpu)

    def _pcie(self, families: Families, gpu: dict[str, str]) -> None:
        replays = counted(self.calls.ask("nvmlDeviceGetPcieReplayCounter"))
        families.add(metrics.GPU_PCIE_REPLAYS_TOTAL, replays, **gpu)
        width = within(self.calls.ask("nvmlDeviceGetCurrPcieLinkWidth"), 1, 32)
        families.add(metrics.GPU_PCIE_LINK_WIDTH, width, **gpu)
        generation = within(self.calls.ask("nvmlDeviceGetCurrPcieLinkGeneration"), 1, 9)
        families.add(metrics.GPU_PCIE_LINK_GENERATION, generation, **gpu)

    def _fabric(self, families: Families, gpu: dict[str, str]) -> None:
        info = next(
            (into for name, into in self._fabrics.items() if self.calls.ask(name, byref(into)) is not None), None
        )
        if info is None:
            return
        state = within(info.state, 1, 255)  # 0 is a GPU without a fabric
        families.add(metrics.GPU_FABRIC_STATE, state, **gpu)
        if state == FABRIC_COMPLETED:
            families.add(metrics.GPU_FABRIC_HEALTHY, info.status == 0, **gpu)
