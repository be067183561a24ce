"""What one look at a node says, by what its library can do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.devices.nvml import GIB, PRESETS, FakeNvml
from tests.integration.exporter.nvidia.conftest import COMMAND, once


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_healthy_gpus_are_up_and_summed_up(node: FakeNvml, preset: str) -> None:
    page = once(node.gpus(8, preset).set(3, utilization=10, power=100_000))
    assert [page[f"gpu_up{{gpu={gpu}}}"] for gpu in range(8)] == [1] * 8
    assert page["gpu_devices_visible{vendor=nvidia}"] == page["gpu_devices_expected{vendor=nvidia}"] == 8
    assert page["gpu_node_utilization_ratio{vendor=nvidia,stat=min}"] == 0.1
    assert page["gpu_node_power_watts{vendor=nvidia,stat=min}"] == 100
    assert page["gpu_node_temperature_celsius{vendor=nvidia,stat=max}"] == 61
    assert page["gpu_node_memory_used_bytes{vendor=nvidia}"] == 8 * int(PRESETS[preset]["memory_used"])
    assert page["trainwarden_collector_success{collector=nvidia}"] == 1
    assert page["gpu_xid_errors_total{gpu=0,xid=79}"] == 0


def test_values_have_base_units(node: FakeNvml) -> None:
    page = once(node.gpus(1))
    expected = {
        "gpu_power_watts{gpu=0}": 512.345,
        "gpu_energy_joules_total{gpu=0}": 123456.789,
        "gpu_clock_hertz{gpu=0,domain=sm}": 1.755e9,
        "gpu_throttle_active{gpu=0,reason=sw_power_cap}": 1,
        "gpu_throttle_active{gpu=0,reason=hw_thermal}": 0,
        "gpu_throttle_seconds_total{gpu=0,reason=sw_power_cap}": 1.5,
        "gpu_nvlink_tx_bytes_total{gpu=0}": 4096 * 1024,
        "gpu_nvlink_errors_total{gpu=0,error=replay}": 18,
        "gpu_temperature_celsius{gpu=0,sensor=memory}": 61,
        "gpu_temperature_margin_celsius{gpu=0}": 35,
        "gpu_ecc_lifetime_errors_total{gpu=0,kind=corrected}": 2,
        "gpu_fabric_state{gpu=0}": 3,
        "gpu_recovery_action{gpu=0}": 0,
        "gpu_mig_enabled{gpu=0}": 0,
    }
    assert {key: page.get(key) for key in expected} == expected
    assert sum(value for key, value in page.items() if key.startswith("gpu_nvlink_up{")) == 18


def test_what_is_no_value_is_left_out(node: FakeNvml) -> None:
    most, unsigned = 2**64 - 1, 2**32 - 1
    sentinels: dict[str, int | str | None] = {
        "power": unsigned,
        "energy": most,
        "utilization": 4_294_967_295,
        "temperature": 0,
        "field__82": 0,
        "field__3": most,
        "field__4": 9_223_372_036_854_775_794,
        "field__138": "nan.0",
        "clock__1": unsigned,
        "width": 0,
        "generation": unsigned,
        "memory_used": 999 * GIB,
        "fabric__state": 0,
    }
    page = once(node.gpus(2).set(0, **sentinels))
    gone = {
        "gpu_power_watts{gpu=0}",
        "gpu_energy_joules_total{gpu=0}",
        "gpu_utilization_ratio{gpu=0}",
        "gpu_temperature_celsius{gpu=0,sensor=gpu}",
        "gpu_temperature_celsius{gpu=0,sensor=memory}",
        "gpu_ecc_errors_total{gpu=0,kind=corrected}",
        "gpu_ecc_errors_total{gpu=0,kind=uncorrected}",
        "gpu_nvlink_tx_bytes_total{gpu=0}",
        "gpu_clock_hertz{gpu=0,domain=sm}",
        "gpu_pcie_link_width{gpu=0}",
        "gpu_pcie_link_generation{gpu=0}",
        "gpu_memory_used_bytes{gpu=0}",
        "gpu_fabric_state{gpu=0}",
    }
    assert gone & page.keys() == set()
    assert {key.replace("gpu=0", "gpu=1") for key in gone} <= page.keys()
    assert page["gpu_up{gpu=0}"] == 1


def test_a_value_of_zero_is_one(node: FakeNvml) -> None:
    page = once(node.gpus(1).set(0, power=0, utilization=0))
    assert page["gpu_power_watts{gpu=0}"] == page["gpu_utilization_ratio{gpu=0}"] == 0


def test_what_an_old_driver_lacks_is_absent_and_all_else_is_there(tmp_path: Path) -> None:
    absent = (
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlEventSetCreate",
    )
    page = once(FakeNvml(tmp_path / "node", absent=absent).gpus(1, "a100"))
    assert page["gpu_up{gpu=0}"] == page["trainwarden_collector_success{collector=nvidia}"] == 1
    assert page["gpu_throttle_active{gpu=0,reason=sw_power_cap}"] == 1, "by its older name"
    assert page["gpu_memory_used_bytes{gpu=0}"] == 33 * GIB
    missing = ("gpu_temperature_margin", "gpu_fabric", "gpu_mig", "gpu_ecc", "gpu_memory_reserved", "gpu_read_errors")
    assert not [key for key in page if key.startswith(missing)]


@pytest.mark.parametrize("code", [6, 15])
def test_a_gpu_that_cannot_be_opened_is_down_and_costs_the_others_nothing(node: FakeNvml, code: int) -> None:
    node.gpus(4).returns(1, "nvmlDeviceGetHandleByPciBusId_v2", code)
    page = once(node)
    assert [page[f"gpu_up{{gpu={gpu}}}"] for gpu in range(4)] == [1, 0, 1, 1]
    assert len([key for key in page if key.startswith("gpu_error_info{gpu=1,error=")]) == 1
    assert page["gpu_devices_visible{vendor=nvidia}"] == 3
    assert page["gpu_node_devices_down{vendor=nvidia}"] == 1
    assert page["gpu_utilization_ratio{gpu=3}"] == 0.98


def test_a_gpu_that_did_not_come_up_is_missed(node: FakeNvml) -> None:
    page = once(node.gpus(7).instance_type("p5.48xlarge"))
    assert (page["gpu_devices_expected{vendor=nvidia}"], page["gpu_devices_visible{vendor=nvidia}"]) == (8, 7)
    assert once(node, "--expect.gpus=4")["gpu_devices_expected{vendor=nvidia}"] == 4


def test_a_node_without_any_gpu_states_that_all_are_missing(node: FakeNvml) -> None:
    page = once(node.instance_type("p5.48xlarge"))
    assert (page["gpu_devices_expected{vendor=nvidia}"], page["gpu_devices_visible{vendor=nvidia}"]) == (8, 0)


def test_in_a_container_that_was_given_some_gpus_the_others_are_not_down(node: FakeNvml) -> None:
    node.gpus(2).on_bus(2).on_bus(3)
    assert once(node)["gpu_node_devices_down{vendor=nvidia}"] == 2
    page = once(node, "--no-collector.nvidia.pci-bus")
    assert (page["gpu_devices_expected{vendor=nvidia}"], page["gpu_node_devices_down{vendor=nvidia}"]) == (2, 0)


@pytest.mark.parametrize(("code", "error"), [(9, "driver_not_loaded"), (18, "driver_library_mismatch")])
def test_a_driver_that_does_not_work_leaves_the_gpus_of_the_bus_in_sight(node: FakeNvml, code: int, error: str) -> None:
    page = once(node.gpus(2).returns(None, "nvmlInit_v2", code))
    assert page[f"gpu_driver_error_info{{vendor=nvidia,error={error}}}"] == 1
    assert (page["gpu_up{gpu=0}"], page["gpu_up{gpu=1}"]) == (0, 0)
    assert page["trainwarden_collector_success{collector=nvidia}"] == 0


def test_a_node_whose_library_cannot_be_loaded_shows_it(node: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library at all")
    environment = {**node.gpus(1).environment(), "LD_LIBRARY_PATH": str(tmp_path)}
    ended = subprocess.run(
        [*COMMAND, "--once", *node.flags()], check=False, capture_output=True, text=True, timeout=60, env=environment
    )
    assert ended.returncode == 0
    assert 'gpu_driver_error_info{vendor="nvidia",error="library_not_found"} 1.0' in ended.stdout
    assert "NVML does not start: library_not_found" in ended.stderr


def test_instances_of_a_divided_gpu_are_listed(node: FakeNvml) -> None:
    page = once(node.gpus(2).mig(0, "1g.10gb", "3g.40gb").set(0, utilization=None))
    instances = [key for key in page if key.startswith("gpu_mig_info{gpu=0")]
    assert [key.partition("profile=")[2] for key in instances] == [
        "1g.10gb,gpu_instance=1,compute_instance=0}",
        "3g.40gb,gpu_instance=2,compute_instance=0}",
    ]
    used = {key: value for key, value in page.items() if key.startswith("gpu_mig_memory_used_bytes")}
    assert sorted(used.values()) == [GIB, 2 * GIB], "without the driver's own memory, as of the whole GPU"
    assert (page["gpu_mig_enabled{gpu=0}"], page["gpu_mig_enabled{gpu=1}"], page["gpu_up{gpu=0}"]) == (1, 0, 1)
