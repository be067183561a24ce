"""How busy the parts of a GPU are, by two samples of its counters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter, Page, once
from tests.waiting import wait_until

pytestmark = pytest.mark.process

Serve = Callable[..., Exporter]
OF_GPM = (
    "gpu_graphics_",
    "gpu_sm_",
    "gpu_tensor_",
    "gpu_memory_bandwidth_",
    "gpu_units_",
    "gpu_pipe_",
    "gpu_pcie_bytes_per",
    "gpu_nvlink_bytes_per",
)


def activity(page: Page) -> Page:
    return {key: value for key, value in page.items() if key.startswith(OF_GPM)}


def test_the_time_between_two_samples_is_exported(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: activity(exporter.page()))
    assert activity(exporter.page()) == {
        "gpu_graphics_active_ratio{gpu=0}": 0.97,
        "gpu_sm_active_ratio{gpu=0}": 0.915,
        "gpu_sm_occupancy_ratio{gpu=0}": 0.4,
        "gpu_tensor_active_ratio{gpu=0}": 0.625,
        "gpu_memory_bandwidth_ratio{gpu=0}": 0.55,
        "gpu_units_active_ratio{gpu=0}": 0.625,
        "gpu_pipe_active_ratio{gpu=0,pipe=fp64}": 0,
        "gpu_pipe_active_ratio{gpu=0,pipe=fp32}": 0.075,
        "gpu_pcie_bytes_per_second{gpu=0,direction=tx}": 100 * 2**20,
        "gpu_pcie_bytes_per_second{gpu=0,direction=rx}": 50 * 2**20,
        "gpu_nvlink_bytes_per_second{gpu=0,direction=tx}": 4096 * 2**20,
        "gpu_nvlink_bytes_per_second{gpu=0,direction=rx}": 2048 * 2**20,
    }


def test_one_look_has_no_time_between_two_samples(node: FakeNvml) -> None:
    assert activity(once(node.gpus(1))) == {}


@pytest.mark.parametrize("flags", [(), ("--no-collector.nvidia.activity",)])
def test_what_the_card_does_not_offer_or_nobody_wants_is_not_sampled(
    node: FakeNvml, serve: Serve, flags: tuple[str, ...]
) -> None:
    node.gpus(1, "h100" if flags else "a100").set(note_calls=1)
    exporter = serve(node, *flags)
    wait_until(lambda: [what for _, what in node.calls()].count("nvmlDeviceGetPowerUsage") > 3)
    assert activity(exporter.page()) == {}
    called = [what for _, what in node.calls()]
    assert "nvmlGpmSampleGet" not in called
    assert called.count("nvmlGpmQueryDeviceSupport") == (0 if flags else 1)


def of_instances(page: Page) -> list[tuple[str, float]]:
    """The name without `gpu_mig_`, the place of the instance, and the value."""
    found = [(key, value) for key, value in page.items() if key.startswith("gpu_mig_") and "_ratio{gpu=0" in key]
    return sorted((key.partition("{")[0].removeprefix("gpu_mig_"), value) for key, value in found)


def test_each_instance_of_a_divided_gpu_has_its_own(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).mig(0, "1g.10gb", "3g.40gb"))
    wait_until(lambda: of_instances(exporter.page()))
    page = exporter.page()
    assert of_instances(page) == [
        ("sm_active_ratio", 0.2),
        ("sm_active_ratio", 0.4),
        ("sm_occupancy_ratio", 0.1),
        ("sm_occupancy_ratio", 0.1),
        ("tensor_active_ratio", 0.05),
        ("tensor_active_ratio", 0.1),
    ]
    assert page["gpu_mig_sm_active_ratio{gpu=0,mig_uuid=MIG-00000001-0000-4000-8000-000000000000}"] == 0.4
    node.set(0, **{"mig.1.uuid": None})
    wait_until(lambda: len(of_instances(exporter.page())) == 3)


@pytest.mark.parametrize(
    ("flags", "model"), [(("--no-collector.nvidia.activity",), "h100"), ((), "a100")], ids=["unwanted", "not offered"]
)
def test_an_instance_without_it_is_listed_all_the_same(
    node: FakeNvml, serve: Serve, flags: tuple[str, ...], model: str
) -> None:
    exporter = serve(node.gpus(1, model).mig(0, "1g.10gb").set(note_calls=1), *flags)
    wait_until(lambda: [what for _, what in node.calls()].count("nvmlDeviceGetMigMode") > 2)
    page = exporter.page()
    assert of_instances(page) == []
    assert page["gpu_mig_enabled{gpu=0}"] == 1
    assert "nvmlGpmMigSampleGet" not in [what for _, what in node.calls()]


def test_a_gpu_that_is_opened_again_uses_the_same_buffers(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: activity(exporter.page()))
    node.lose(0)
    wait_until(lambda: exporter.page().get("gpu_up{gpu=0}") == 0)
    assert activity(exporter.page()) == {}
    node.set(0, lost=None)
    wait_until(lambda: activity(exporter.page()))
    assert [what for _, what in node.calls()].count("gpm sample") == 2
