"""What is slow to read or seldom changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.gpu import metrics
from trainwarden_exporter.collectors.gpu.amd.values import generation, number, within

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.gpu.amd.calls import Calls
    from trainwarden_exporter.core.metric import Families

# What amdsmi calls it, and what the same is called of GPUs of every vendor.
VIOLATIONS = {
    "ppt_pwr": "sw_power_cap",
    "socket_thrm": "hw_thermal",
    "prochot_thrm": "prochot",
    "vr_thrm": "vr_thermal",
    "hbm_thrm": "hbm_thermal",
}
ECC = {"correctable_count": "corrected", "uncorrectable_count": "uncorrected", "deferred_count": "deferred"}
PAGE_STATES = {0: "reserved", 1: "pending", 2: "unreservable"}
LINK_STATES = {"U": 1, "D": 0}
KIB = 1024


class SlowTier:
    """Reads one GPU; for one thread."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._before: tuple[float, float, dict[str, float]] | None = None
        self._held_down: dict[str, float] = {}

    def read(self, families: Families, **gpu: str) -> None:
        """Add the series of one sample."""
        cap = within(self.calls.table("amdsmi_get_power_cap_info").get("power_cap"), 1e6, 20_000e6)
        families.add(metrics.GPU_POWER_LIMIT_WATTS, None if cap is None else cap / 1e6, **gpu)
        ecc = self.calls.table("amdsmi_get_gpu_total_ecc_count")
        for key, kind in ECC.items():
            families.add(metrics.GPU_ECC_ERRORS_TOTAL, number(ecc.get(key)), kind=kind, **gpu)
        self._pcie(families, gpu)
        self._xgmi(families, gpu)
        self._pages(families, gpu)
        self._violations(families, gpu)

    def _pcie(self, families: Families, gpu: dict[str, str]) -> None:
        pcie = self.calls.table("amdsmi_get_pcie_info").get("pcie_metric")
        if not isinstance(pcie, dict):
            return
        families.add(metrics.GPU_PCIE_REPLAYS_TOTAL, number(pcie.get("pcie_replay_count")), **gpu)
        families.add(metrics.GPU_PCIE_LINK_WIDTH, within(pcie.get("pcie_width"), 1, 64), **gpu)
        families.add(metrics.GPU_PCIE_LINK_GENERATION, generation(pcie.get("pcie_speed")), **gpu)

    def _xgmi(self, families: Families, gpu: dict[str, str]) -> None:
        states = _list(self.calls.table("amdsmi_get_gpu_xgmi_link_status").get("status"))
        for link, state in enumerate(states):
            families.add(metrics.GPU_XGMI_LINK_UP, LINK_STATES.get(str(state)), link=str(link), **gpu)
        links = _list(self.calls.table("amdsmi_get_link_metrics").get("links"))
        for direction, metric in (
            ("read", metrics.GPU_XGMI_READ_BYTES_TOTAL),
            ("write", metrics.GPU_XGMI_WRITE_BYTES_TOTAL),
        ):
            amounts = [number(link.get(direction)) for link in links if isinstance(link, dict)]
            known = [amount for amount in amounts if amount is not None]
            families.add(metric, sum(known) * KIB if known else None, **gpu)

    def _pages(self, families: Families, gpu: dict[str, str]) -> None:
        pages = self.calls.ask("amdsmi_get_gpu_bad_page_info")
        if not isinstance(pages, list):  # old versions say in words that there are none
            return
        for code, state in PAGE_STATES.items():
            count = sum(1 for page in pages if isinstance(page, dict) and page.get("status") == code)
            families.add(metrics.GPU_RETIRED_PAGES, count, state=state, **gpu)

    def _violations(self, families: Families, gpu: dict[str, str]) -> None:
        said, now = self.calls.table("amdsmi_get_violation_status"), time.monotonic()
        for key, reason in VIOLATIONS.items():
            active = said.get(f"active_{key}")
            families.add(
                metrics.GPU_THROTTLE_ACTIVE, active if isinstance(active, bool) else None, reason=reason, **gpu
            )
        steps = number(said.get("acc_counter"))
        if steps is None:
            return
        counts = {key: count for key in VIOLATIONS if (count := number(said.get(f"acc_{key}"))) is not None}
        self._add_up(now, steps, counts)
        for key in counts:
            families.add(metrics.GPU_THROTTLE_SECONDS_TOTAL, self._held_down[key], reason=VIOLATIONS[key], **gpu)

    def _add_up(self, now: float, steps: float, counts: dict[str, float]) -> None:
        """It counts steps of its firmware, of no stated length: their share of all steps is a share of the time."""
        before, self._before = self._before, (now, steps, counts)
        for key, count in counts.items():
            self._held_down.setdefault(key, 0.0)
            if before is not None and steps > before[1] and key in before[2] and count >= before[2][key]:
                share = min(1.0, (count - before[2][key]) / (steps - before[1]))
                self._held_down[key] += share * (now - before[0])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
