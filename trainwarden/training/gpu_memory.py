"""The memory of the GPU that a process trains on, as PyTorch counts it, where PyTorch is in use already.

A call into its allocator may wait for a GPU that hangs. So the loop's own thread makes it, inside `step()`, and the
thread that carries the run's liveness only says when. PyTorch is never imported here, CUDA or HIP never initialised.
"""

import logging
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

SAMPLE_SECONDS = 10.0
# More than the context of this process itself, which counts as taken too.
_HEALTHY_SHARE = 0.1
_MB = 2**20

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class Sample:
    """The memory at one moment, in MB of 2**20 bytes: in tensors, held by PyTorch, the most in tensors so far."""

    allocated_mb: float
    reserved_mb: float
    peak_allocated_mb: float

    def as_json(self) -> dict[str, float]:
        """As the event `gpu_stats` says it."""
        return asdict(self)


@dataclass(frozen=True)
class GpuStats:
    """All samples of an attempt. `healthy_before_start` is None where it could not be known."""

    samples: int = 0
    sum_allocated_mb: float = 0.0
    max_allocated_mb: float | None = None
    max_reserved_mb: float | None = None
    peak_allocated_mb: float | None = None
    healthy_before_start: bool | None = None
    last: Sample | None = None

    def as_json(self) -> dict[str, Any]:
        """As `summary.json` says it."""
        return {
            "samples": self.samples,
            "avg_allocated_mb": round(self.sum_allocated_mb / self.samples, 1) if self.samples else None,
            "max_allocated_mb": self.max_allocated_mb,
            "max_reserved_mb": self.max_reserved_mb,
            "peak_allocated_mb": self.peak_allocated_mb,
            "healthy_before_start": self.healthy_before_start,
        }


class GpuMemory:
    """Samples when `due`; after an exception never again. `stats` is replaced as a whole, so any thread may read it."""

    def __init__(self) -> None:
        # A plain attribute: `step()` looks at it every time.
        self.due = False
        self.stats = GpuStats()
        self._stopped = False
        self._armed_time = float("-inf")

    def look_before_start(self) -> None:
        """Find out how much of the device others have taken, if CUDA or HIP is initialised already. Never raises."""
        try:
            cuda = _initialised_cuda()
            if cuda is not None:
                free, total = cuda.mem_get_info()
                taken = total - free - cuda.memory_stats().get("reserved_bytes.all.current", 0)
                self.stats = GpuStats(healthy_before_start=bool(taken <= total * _HEALTHY_SHARE))
        except Exception:  # a GPU that is sick shows soon enough
            logger.debug("the memory of the GPU could not be looked at", exc_info=True)

    def arm(self) -> None:
        """Have the next step take a sample, if it is time for one; only looks at what is imported."""
        now = time.monotonic()
        if not self._stopped and "torch" in sys.modules and now - self._armed_time >= SAMPLE_SECONDS:
            self._armed_time = now
            self.due = True

    def sample(self) -> None:
        """Take a sample, in the loop's thread. Never raises."""
        self.due = False
        try:
            cuda = _initialised_cuda()
            if cuda is not None:
                self.stats = _add(self.stats, _sample(cuda.memory_stats()))
        except Exception as error:  # noqa: BLE001  # whatever state the GPU is in, training goes on
            self._stopped = True
            logger.warning("the memory of the GPU is not recorded any more: %s", error)


def _initialised_cuda() -> Any | None:
    # Not by attribute access: a module may import others when asked for a name that it does not have yet.
    torch = sys.modules.get("torch")
    cuda = vars(torch).get("cuda") if torch is not None else None
    is_initialized = vars(cuda).get("is_initialized") if cuda is not None else None
    return cuda if is_initialized is not None and is_initialized() else None


def _sample(counted: dict[str, Any]) -> Sample:
    # What PyTorch does not list it has not allocated yet.
    return Sample(
        allocated_mb=_megabytes(counted.get("allocated_bytes.all.current", 0)),
        reserved_mb=_megabytes(counted.get("reserved_bytes.all.current", 0)),
        peak_allocated_mb=_megabytes(counted.get("allocated_bytes.all.peak", 0)),
    )


def _megabytes(size: Any) -> float:
    return round(float(size) / _MB, 1)


def _add(stats: GpuStats, sample: Sample) -> GpuStats:
    return GpuStats(
        samples=stats.samples + 1,
        sum_allocated_mb=stats.sum_allocated_mb + sample.allocated_mb,
        max_allocated_mb=max(stats.max_allocated_mb or 0.0, sample.allocated_mb),
        max_reserved_mb=max(stats.max_reserved_mb or 0.0, sample.reserved_mb),
        peak_allocated_mb=max(stats.peak_allocated_mb or 0.0, sample.peak_allocated_mb),
        healthy_before_start=stats.healthy_before_start,
        last=sample,
    )
