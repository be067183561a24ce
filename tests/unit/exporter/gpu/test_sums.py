"""What the rules read of all GPUs of a node together never jumps for another reason than an error."""

from __future__ import annotations

from trainwarden_exporter.collectors.gpu import link_metrics, metrics
from trainwarden_exporter.collectors.gpu.sums import GpuSums
from trainwarden_exporter.core.metric import Families


def count(sums: GpuSums, uuid: str, value: float, error: str = "recovery", gpu: str = "0") -> None:
    families = Families()
    families.add(link_metrics.GPU_NVLINK_ERRORS_TOTAL, value, gpu=gpu, uuid=uuid, error=error)
    families.add(metrics.GPU_UP, 1, gpu=gpu, uuid=uuid)
    sums.count(families)


def shown(sums: GpuSums) -> dict[tuple[str, ...], float]:
    return {(family.metric.name, *row.labels): row.value for family in sums.read() for row in family.rows}


def test_errors_of_all_gpus_are_summed_up_by_their_kind() -> None:
    sums = GpuSums("nvidia", {}, 1.0)
    for uuid, value, error in (("a", 5, "recovery"), ("b", 70, "recovery"), ("a", 8, "recovery"), ("a", 1, "replay")):
        count(sums, uuid, value, error)
    assert shown(sums) == {
        ("gpu_node_nvlink_errors_total", "nvidia", "recovery"): 3,
        ("gpu_node_nvlink_errors_total", "nvidia", "replay"): 0,
    }


def test_a_gpu_that_is_lost_exchanged_or_counts_anew_is_no_burst() -> None:
    sums = GpuSums("nvidia", {}, 1.0)
    for uuid, value in (("a", 5), ("a", 6), ("another in its slot", 10**6), ("a", 2), ("a", 3)):
        count(sums, uuid, value)
    assert list(shown(sums).values()) == [4]


def test_gpus_whose_driver_gives_them_no_uuid_of_their_own_are_counted_each_by_itself() -> None:
    sums = GpuSums("amd", {}, 1.0)
    for _ in range(3):
        count(sums, "", 5, gpu="0")
        count(sums, "", 70, gpu="1")
    assert list(shown(sums).values()) == [0]


def test_without_counters_nothing_is_shown() -> None:
    assert shown(GpuSums("nvidia", {}, 1.0)) == {}
