"""The health of the NVSwitch fabric as one GPU has it."""

from __future__ import annotations

from ctypes import Structure, byref, c_ubyte, c_uint
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden_exporter.collectors.gpu import link_metrics
from trainwarden_exporter.collectors.gpu.nvml import values

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.core.metric import Families

COMPLETED = 3
# Values of the summary that are no problem: not supported, healthy.
_HEALTHY = (0, 1)


class MaskField(NamedTuple):
    """A field of the health mask: 0 is not supported, and `bad` are the values that are a problem.

    Attributes:
        shift: the number of its lowest bit.
        mask: its bits once they are shifted down.
    """

    shift: int
    mask: int
    bad: frozenset[int]


# NVML_GPU_FABRIC_HEALTH_MASK_* in nvml.h.
PROBLEMS = {
    "degraded_bandwidth": MaskField(0, 0x3, frozenset({1})),
    "route_recovery": MaskField(2, 0x3, frozenset({1})),
    "route_unhealthy": MaskField(4, 0x3, frozenset({1})),
    "access_timeout_recovery": MaskField(6, 0x3, frozenset({1})),
    "incorrect_configuration": MaskField(8, 0xF, frozenset(range(2, 16))),
    "no_fabric_manager": MaskField(14, 0x3, frozenset({2})),
}


# As in nvml.h: the structures of pynvml before 13 are laid out otherwise, and have their fields in other places.
_COMMON: list[tuple[str, Any]] = [("cluster", c_ubyte * 16), ("status", c_uint), ("clique", c_uint), ("state", c_ubyte)]


class _Info(Structure):
    """nvmlGpuFabricInfo_t."""

    _fields_ = _COMMON


class _InfoV2(Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = [("version", c_uint), *_COMMON, ("mask", c_uint)]


class _InfoV3(Structure):
    """nvmlGpuFabricInfo_v3_t."""

    _fields_ = [("version", c_uint), *_COMMON, ("mask", c_uint), ("summary", c_ubyte)]


class Fabric:
    """Reads it; for one thread."""

    def __init__(self, calls: DriverCalls) -> None:
        self._calls = calls
        # Newest first: a driver supports some of them.
        self._tables = (
            ("nvmlDeviceGetGpuFabricInfoV", _InfoV3(version=0x3000028)),
            ("nvmlDeviceGetGpuFabricInfoV", _InfoV2(version=0x2000024)),
            ("nvmlDeviceGetGpuFabricInfo", _Info()),
        )

    def add_to(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        info = self._read()
        if info is None:
            return
        state = values.within(info.state, 1, 255)  # 0: the GPU has no fabric
        families.add(link_metrics.GPU_FABRIC_STATE, state, **gpu)
        if state != COMPLETED:
            return
        problems = problems_of(getattr(info, "mask", 0))
        for problem, there in problems.items():
            families.add(link_metrics.GPU_FABRIC_PROBLEM, there, **gpu, problem=problem)
        well = getattr(info, "summary", 0) in _HEALTHY and not any(problems.values())
        families.add(link_metrics.GPU_FABRIC_HEALTHY, info.status == 0 and well, **gpu)

    def _read(self) -> Any:
        for variant, (call, table) in enumerate(self._tables):
            if self._calls.call(call, byref(table), variant=variant) is not None:
                return table
        return None


def problems_of(mask: int) -> dict[str, bool]:
    """Return which problems a health mask reports, those alone that the driver supports."""
    found = {problem: mask >> field.shift & field.mask for problem, field in PROBLEMS.items()}
    return {problem: value in PROBLEMS[problem].bad for problem, value in found.items() if value}
