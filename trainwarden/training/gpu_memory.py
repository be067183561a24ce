"""The GPU that a process trains on, its memory and who else uses that, as PyTorch has them, where it is in use already.

A call into the allocator may wait for a hanging GPU. So the loop's own thread makes it, inside `step()`, and the thread
that writes the heartbeat only sets `due`. PyTorch is never imported here, CUDA or HIP never initialised.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

SAMPLE_SECONDS = 10.0
# More than the CUDA context of this process, which counts as used memory too.
_HEALTHY_SHARE = 0.1
_MB = 2**20
_GB = 2**30
_MAX_NAME = 100
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# After the first step collective and mathematical libraries have buffers of their own as well.
_LIBRARIES_BYTES = 2048 * _MB

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class GpuMemorySample:
    """One measurement, in MB of 2**20 bytes: memory in tensors, reserved by PyTorch, highest in tensors so far."""

    allocated_mb: float
    reserved_mb: float
    peak_allocated_mb: float

    def as_json(self) -> dict[str, float]:
        """Return the data of the event `gpu_stats`."""
        return asdict(self)


@dataclass(frozen=True)
class GpuDevice:
    """A GPU: its number among those that the process sees, and its UUID as NVIDIA's driver writes it.

    `name` is its type, such as NVIDIA H100 80GB HBM3, and `count` how many the process sees.
    """

    number: int | None
    uuid: str | None
    name: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class MemoryBefore:
    """The memory of the GPU before training, in bytes: all of it, and what is used by anything but this process.

    `allowed` is how much may be used: the CUDA context of this process counts as used, too.
    """

    used_by_others: int
    total: int
    allowed: float

    @property
    def is_healthy(self) -> bool:
        """Whether no more is used than may be."""
        return self.used_by_others <= self.allowed

    def __str__(self) -> str:
        return f"{self.used_by_others / _GB:.1f} of {self.total / _GB:.1f} GiB"


@dataclass(frozen=True)
class GpuMemoryStats:
    """Aggregates over the samples of an attempt. `healthy_before_start` is None where no GPU was in use."""

    samples: int = 0
    sum_allocated_mb: float = 0.0
    max_allocated_mb: float | None = None
    max_reserved_mb: float | None = None
    peak_allocated_mb: float | None = None
    healthy_before_start: bool | None = None
    last: GpuMemorySample | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object `gpu_stats` of `summary.json`."""
        return {
            "samples": self.samples,
            "avg_allocated_mb": round(self.sum_allocated_mb / self.samples, 1) if self.samples else None,
            "max_allocated_mb": self.max_allocated_mb,
            "max_reserved_mb": self.max_reserved_mb,
            "peak_allocated_mb": self.peak_allocated_mb,
            "healthy_before_start": self.healthy_before_start,
        }


class GpuMemory:
    """Samples the memory when `due`, and stops after the first exception.

    `stats` is replaced as a whole, so any thread may read it.

    Args:
        is_recorded: whether the memory is sampled; else the device and who else uses it are read, once.

    Attributes:
        device: the GPU that is in use; None until it is known.
        before: its memory before training; None until it is known.
    """

    def __init__(self, *, is_recorded: bool = True) -> None:
        # A plain attribute, because every `step()` reads it.
        self.due = False
        self.stats = GpuMemoryStats()
        self.device: GpuDevice | None = None
        self.before: MemoryBefore | None = None
        self._is_recorded = is_recorded
        self._stopped = False
        self._armed_time = float("-inf")

    def check_before_start(self) -> None:
        """Measure how much memory other processes use, if CUDA or HIP is initialised already. Never raises."""
        try:
            cuda = _initialised_cuda()
            if cuda is not None:
                self.device = _device(cuda)
                self._note_before(_before(cuda, cuda.memory_stats()))
        except Exception:  # a broken GPU fails the training soon enough
            logger.debug("the memory of the GPU could not be read", exc_info=True)

    def arm(self) -> None:
        """Set `due` if the last sample is old enough and PyTorch is imported."""
        now = time.monotonic()
        if not self._stopped and "torch" in sys.modules and now - self._armed_time >= SAMPLE_SECONDS:
            self._armed_time = now
            self.due = True

    def sample(self) -> None:
        """Take a sample; to be called in the loop's thread. Never raises."""
        self.due = False
        try:
            cuda = _initialised_cuda()
            if cuda is None:
                return
            if self.device is None:
                self.device = _device(cuda)
            counters = cuda.memory_stats() if self._is_recorded or self.before is None else {}
            if self.before is None:
                # The run began before CUDA: this is the first measurement.
                self._note_before(_before(cuda, counters, _LIBRARIES_BYTES))
            if self._is_recorded:
                self.stats = _add(self.stats, _sample(counters))
            else:
                self._stopped = True
        except Exception as error:  # noqa: BLE001  # whatever state the GPU is in, training goes on
            self._stopped = True
            logger.warning("the memory of the GPU is not recorded any more: %s", error)

    def unhealthy_data(self) -> dict[str, Any]:
        """Return the data of the event `gpu_unhealthy`."""
        device, before = self.device, self.before
        return {
            "gpu": device and device.number,
            "uuid": device and device.uuid,
            "gpu_type": device and device.name,
            "used_by_others_mb": before and _megabytes(before.used_by_others),
            "total_mb": before and _megabytes(before.total),
        }

    def _note_before(self, before: MemoryBefore) -> None:
        self.before = before
        self.stats = replace(self.stats, healthy_before_start=before.is_healthy)
        if not before.is_healthy:
            device = self.device or GpuDevice(None, None)
            logger.warning(
                "other processes use %s of the memory of GPU %s%s before the training: it may run out of memory; "
                "nvidia-smi lists them",
                before,
                "?" if device.number is None else device.number,
                f" ({device.name})" if device.name else "",
            )


def _initialised_cuda() -> Any | None:
    # Through vars(): attribute access on a lazy module may import others.
    torch = sys.modules.get("torch")
    cuda = vars(torch).get("cuda") if torch is not None else None
    is_initialized = vars(cuda).get("is_initialized") if cuda is not None else None
    return cuda if is_initialized is not None and is_initialized() else None


def _device(cuda: Any) -> GpuDevice:
    number = uuid = name = count = None
    properties: Any = None
    # Each may be absent in another version of PyTorch.
    with contextlib.suppress(Exception):
        number = int(cuda.current_device())
        properties = cuda.get_device_properties(number)
    with contextlib.suppress(Exception):
        # In versions before 2.4 there is none; a partition of a GPU has its own.
        found = str(properties.uuid)
        if _UUID.fullmatch(found) and sys.modules["torch"].version.hip is None:
            is_partition = os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
            uuid = f"{'MIG' if is_partition else 'GPU'}-{found}"
    with contextlib.suppress(Exception):
        name, count = str(properties.name)[:_MAX_NAME], int(cuda.device_count())
    return GpuDevice(number, uuid, name, count)


def _before(cuda: Any, counters: dict[str, Any], libraries: int = 0) -> MemoryBefore:
    """Measure how much of the device's memory is used by anything but PyTorch in this process."""
    free, total = cuda.mem_get_info()
    used_by_others = total - free - counters.get("reserved_bytes.all.current", 0)
    return MemoryBefore(max(0, int(used_by_others)), int(total), max(total * _HEALTHY_SHARE, libraries))


def _sample(counters: dict[str, Any]) -> GpuMemorySample:
    # Counters are absent before the first allocation.
    return GpuMemorySample(
        allocated_mb=_megabytes(counters.get("allocated_bytes.all.current", 0)),
        reserved_mb=_megabytes(counters.get("reserved_bytes.all.current", 0)),
        peak_allocated_mb=_megabytes(counters.get("allocated_bytes.all.peak", 0)),
    )


def _megabytes(size: Any) -> float:
    return round(float(size) / _MB, 1)


def _add(stats: GpuMemoryStats, sample: GpuMemorySample) -> GpuMemoryStats:
    return GpuMemoryStats(
        samples=stats.samples + 1,
        sum_allocated_mb=stats.sum_allocated_mb + sample.allocated_mb,
        max_allocated_mb=max(stats.max_allocated_mb or 0.0, sample.allocated_mb),
        max_reserved_mb=max(stats.max_reserved_mb or 0.0, sample.reserved_mb),
        peak_allocated_mb=max(stats.peak_allocated_mb or 0.0, sample.peak_allocated_mb),
        healthy_before_start=stats.healthy_before_start,
        last=sample,
    )
