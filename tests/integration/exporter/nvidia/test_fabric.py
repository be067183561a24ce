"""NVLinks and the fabric between GPUs, as drivers of several generations report them."""

from __future__ import annotations

import pytest

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Page, once

pytestmark = pytest.mark.process

WELL = 0x51AA


def problems(page: Page) -> dict[str, float]:
    return {
        key.partition("problem=")[2].rstrip("}"): value
        for key, value in page.items()
        if key.startswith("gpu_fabric_problem{gpu=0,")
    }


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (WELL ^ 0x3, "degraded_bandwidth"),
        (WELL ^ 0x3 << 2, "route_recovery"),
        (WELL ^ 0x3 << 4, "route_unhealthy"),
        (WELL ^ 0x3 << 6, "access_timeout_recovery"),
        (WELL ^ 0x5 << 8, "incorrect_configuration"),
        (WELL ^ 0x3 << 14, "no_fabric_manager"),
    ],
)
def test_each_bit_of_the_health_mask_that_is_bad_makes_the_fabric_unhealthy(
    node: FakeNvml, mask: int, problem: str
) -> None:
    page = once(node.gpus(2, "b200").set(0, fabric__mask=mask))
    assert problems(page) == dict.fromkeys(problems(page), 0) | {problem: 1}
    assert len(problems(page)) == 6
    assert (page["gpu_fabric_healthy{gpu=0}"], page["gpu_fabric_healthy{gpu=1}"]) == (0, 1)


def test_a_field_of_the_mask_that_the_driver_does_not_support_is_no_problem(node: FakeNvml) -> None:
    page = once(node.gpus(1, "b200").set(fabric__mask=0x2))
    assert problems(page) == {"degraded_bandwidth": 0}
    assert page["gpu_fabric_healthy{gpu=0}"] == 1


def test_a_fabric_whose_summary_alone_is_bad_is_unhealthy(node: FakeNvml) -> None:
    assert once(node.gpus(1, "b200").set(fabric__summary=3))["gpu_fabric_healthy{gpu=0}"] == 0


@pytest.mark.parametrize("version", [2, 3])
def test_the_mask_is_read_in_each_version_of_the_call(node: FakeNvml, version: int) -> None:
    page = once(node.gpus(1, "b200").set(fabric__version=version, fabric__mask=0x1))
    assert page["gpu_fabric_healthy{gpu=0}"] == 0


def test_nvlink_5_is_counted_by_its_own_fields(node: FakeNvml) -> None:
    errors = {"field.219.3": 5, "field.219.17": 7, "field.214.0": 1, "field.220.4": 3 << 8 | 9}
    page = once(node.gpus(2, "b200").set(0, **errors))
    expected = {
        "gpu_nvlink_errors_total{gpu=0,error=effective}": 12,
        "gpu_nvlink_errors_total{gpu=0,error=link_recovery_failed}": 1,
        "gpu_nvlink_errors_total{gpu=0,error=symbol}": 0,
        "gpu_nvlink_errors_total{gpu=0,error=replay}": 0,
        "gpu_nvlink_tx_bytes_total{gpu=0}": 18e6,
        "gpu_nvlink_rx_bytes_total{gpu=0}": 9e6,
        "gpu_nvlink_bit_error_ratio{gpu=0,kind=effective}": pytest.approx(3e-9),
        "gpu_nvlink_bit_error_ratio{gpu=1,kind=effective}": pytest.approx(0),
        "gpu_pcie_tx_bytes_total{gpu=0}": 7000,
        "gpu_pcie_rx_bytes_total{gpu=0}": 9000,
        "gpu_sram_ecc_threshold_exceeded{gpu=0}": 0,
    }
    assert {key: page.get(key) for key in expected} == expected


def test_links_of_hopper_are_counted_by_its_fields_alone(node: FakeNvml) -> None:
    page = once(node.gpus(1))
    assert page["gpu_nvlink_tx_bytes_total{gpu=0}"] == 4096 * 1024
    assert not [key for key in page if "error=effective" in key or key.startswith("gpu_nvlink_bit")]
