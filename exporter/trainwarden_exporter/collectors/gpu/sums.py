"""Counters of the GPUs of a node, summed up: a few series, over which a rule can take a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu import link_metrics, metrics, node_metrics
from trainwarden_exporter.collectors.gpu.state import wait_for_first_samples
from trainwarden_exporter.core.device_sums import DeviceSums
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.collectors.gpu.state import GpuState
    from trainwarden_exporter.core.metric import Family

# Each has the labels gpu and uuid and one more; its sum has the vendor and that one.
SUMMED = {
    metrics.GPU_ECC_ERRORS_TOTAL: node_metrics.GPU_NODE_ECC_ERRORS_TOTAL,
    metrics.GPU_THROTTLE_SECONDS_TOTAL: node_metrics.GPU_NODE_THROTTLE_SECONDS_TOTAL,
    link_metrics.GPU_NVLINK_ERRORS_TOTAL: node_metrics.GPU_NODE_NVLINK_ERRORS_TOTAL,
}


class GpuSums:
    """The sums of one vendor's GPUs; `count` and `read` are called in different threads.

    Args:
        vendor: of the GPUs.
        states: the GPUs by bus address; others may be added meanwhile.
        timeout: deadline of `read`, seconds.
    """

    def __init__(self, vendor: str, states: Mapping[str, GpuState], timeout: float) -> None:
        self._vendor = vendor
        self._states = states
        self._timeout = timeout
        self._sums = DeviceSums()
        self._waited = False

    def count(self, families: Families) -> None:
        """Add what the counters in a sample of one GPU have grown by."""
        for metric, labels, values in families.columns():
            if metric in SUMMED:
                # With the index: a driver may give several GPUs one uuid, or none.
                for (index, uuid, kind), value in zip(labels, values, strict=True):
                    self._sums.count((metric, index, uuid, kind), value, SUMMED[metric], (self._vendor, kind))

    def read(self) -> list[Family]:
        """Return the sums; at first wait until both tiers of each GPU were sampled, or almost reached the deadline."""
        if not self._waited:
            self._waited = True
            wait_for_first_samples([state.attempted_slow for state in list(self._states.values())], self._timeout)
        families = Families()
        self._sums.add_to(families)
        return families.collected()
