"""The NVLinks of one GPU: which are up, the errors of all of them together, and since Blackwell their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu import link_metrics
from trainwarden_exporter.collectors.gpu.nvml.fields import ALL_LINKS, FieldValues
from trainwarden_exporter.collectors.gpu.nvml.values import bit_error_ratio

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.calls import DriverCalls
    from trainwarden_exporter.collectors.gpu.nvml.fields import FieldKey
    from trainwarden_exporter.core.metric import Families

# Fields that NVML sums up over the links of a GPU until Ampere, those that Hopper counts for each link, and NVLink 5's.
TOTALS = {(38, 0): "crc_flit", (45, 0): "crc_data", (52, 0): "replay", (59, 0): "recovery", (160, 0): "ecc_data"}
PER_LINK = {161: "replay", 162: "recovery", 163: "crc"}
NVLINK5 = {
    206: "malformed_packet",
    207: "buffer_overrun",
    208: "receive",
    209: "receive_remote",
    210: "receive_general",
    211: "local_integrity",
    212: "transmit_discard",
    214: "link_recovery_failed",
    215: "link_recovery",
    219: "effective",
    221: "symbol",
}
NVLINK5_BYTES = {202: link_metrics.GPU_NVLINK_TX_BYTES_TOTAL, 204: link_metrics.GPU_NVLINK_RX_BYTES_TOTAL}
NVLINK5_BIT_ERRORS = {220: "effective", 222: "symbol"}
# The bytes of all links until Hopper, which the fast tier exports.
_BYTES = (138, ALL_LINKS)
MAX_LINKS = 36
# Fields in one call: a driver holds its lock meanwhile.
_LINKS_IN_CALL = 6


class NvLinks:
    """Reads the links of one GPU; for one thread."""

    def __init__(self, calls: DriverCalls) -> None:
        self._calls = calls
        self._totals = FieldValues(calls, [*TOTALS, _BYTES])
        self._per_link: list[FieldValues] = []
        self._links = 0
        # The last count of each link: one that stops answering must not make the counter, their sum, smaller.
        self._counts: dict[FieldKey, float] = {}

    def add_to(self, families: Families, gpu: dict[str, str]) -> None:
        """Add the series of one sample; raises `GpuDown`."""
        links = number_up = 0
        for link in range(MAX_LINKS):
            state = self._calls.call("nvmlDeviceGetNvLinkState", link)
            if state is not None:
                links = link + 1
                up = state == pynvml.NVML_FEATURE_ENABLED
                number_up += up
                families.add(link_metrics.GPU_NVLINK_UP, up, **gpu, link=str(link))
        if not links:
            return
        families.add(link_metrics.GPU_LINKS_UP, number_up, **gpu, kind="nvlink")
        if links > self._links:
            self._links, self._per_link = links, _fields_of_links(self._calls, links)
        totals = self._totals.read()
        fields: dict[FieldKey, float] = {}
        for values in self._per_link:
            fields |= values.read()
        self._counts |= {key: value for key, value in fields.items() if key[0] not in NVLINK5_BIT_ERRORS}
        sums: dict[int, float] = {}
        for (field, _), value in self._counts.items():
            sums[field] = sums.get(field, 0.0) + value
        errors = {name: sums[field] for field, name in (PER_LINK | NVLINK5).items() if field in sums}
        errors |= {TOTALS[key]: value for key, value in totals.items() if key in TOTALS}
        for error, value in errors.items():
            families.add(link_metrics.GPU_NVLINK_ERRORS_TOTAL, value, **gpu, error=error)
        for field, metric in NVLINK5_BYTES.items():
            if field in sums and _BYTES not in totals:
                families.add(metric, sums[field], **gpu)
        for field, kind in NVLINK5_BIT_ERRORS.items():
            ratios = [bit_error_ratio(value) for key, value in fields.items() if key[0] == field]
            families.add(link_metrics.GPU_NVLINK_BIT_ERROR_RATIO, max(ratios, default=None), **gpu, kind=kind)


def _fields_of_links(calls: DriverCalls, links: int) -> list[FieldValues]:
    """Return the fields of each link; those of NVLink 5 apart, for an old driver refuses a whole call for them."""
    newer = [*NVLINK5, *NVLINK5_BYTES, *NVLINK5_BIT_ERRORS]
    wanted = [(field, link) for link in range(links) for field in newer]
    step = _LINKS_IN_CALL * len(newer)
    return [
        FieldValues(calls, [(field, link) for field in PER_LINK for link in range(links)]),
        *(FieldValues(calls, wanted[first : first + step]) for first in range(0, len(wanted), step)),
    ]
