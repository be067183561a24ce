"""GPUs by the names, units and labels of dcgm-exporter, as its dashboards query them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter
from tests.waiting import wait_until

pytestmark = pytest.mark.process

Serve = Callable[..., Exporter]


def dcgm(exporter: Exporter, gpu: str = "0") -> dict[str, float]:
    """The samples of one GPU that have DCGM's names."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(exporter.text())
        for sample in family.samples
        if sample.name.startswith("DCGM_") and sample.labels["gpu"] == gpu
    }


def test_values_are_in_the_units_of_dcgm(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2).set(1, minor=5), "--compat.dcgm", "--instance-host=n1")
    wait_until(
        lambda: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in dcgm(exporter, "1") and "DCGM_FI_DEV_FB_USED" in dcgm(exporter)
    )
    wait_until(lambda: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in dcgm(exporter))
    expected = {
        "DCGM_FI_DEV_GPU_UTIL": 98,
        "DCGM_FI_DEV_GPU_TEMP": 52,
        "DCGM_FI_DEV_MEMORY_TEMP": 61,
        "DCGM_FI_DEV_SM_CLOCK": 1755,
        "DCGM_FI_DEV_POWER_USAGE": 512.345,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123_456_789,
        "DCGM_FI_DEV_FB_USED": 71 * 1024,
        "DCGM_FI_DEV_FB_FREE": 9 * 1024 - 600,
        "DCGM_FI_DEV_XID_ERRORS": 0,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.97,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.625,
        "DCGM_FI_PROF_PCIE_TX_BYTES": 100 * 2**20,
    }
    found = dcgm(exporter)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    labels = (
        '{gpu="1",UUID="%s",pci_bus_id="00000000:3C:00.0",device="nvidia5",modelName="NVIDIA H100 80GB HBM3",'
        'Hostname="n1",DCGM_FI_DRIVER_VERSION="570.133.20",namespace="",pod="",container="",hpc_job=""}'
    )
    assert f"DCGM_FI_DEV_GPU_UTIL{labels % node.uuid(1)} 98.0" in exporter.text()


def test_the_last_xid_is_shown_and_a_gpu_that_is_down_has_no_values(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2), "--compat.dcgm")
    wait_until(lambda: dcgm(exporter).get("DCGM_FI_DEV_XID_ERRORS") == 0)
    node.xid(0, 31)
    wait_until(lambda: dcgm(exporter).get("DCGM_FI_DEV_XID_ERRORS") == 31)
    node.xid(0, 79).lose(0)
    wait_until(lambda: dcgm(exporter) == {"DCGM_FI_DEV_XID_ERRORS": 79})
    assert dcgm(exporter, "1")["DCGM_FI_DEV_XID_ERRORS"] == 0


def test_without_the_flag_there_are_none(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: exporter.page().get("gpu_up{gpu=0}") == 1)
    assert dcgm(exporter) == {}
