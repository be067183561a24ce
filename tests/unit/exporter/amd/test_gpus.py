"""AMD GPUs that are well, and such that answer half of what they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.devices.amd import uuid

if TYPE_CHECKING:
    from tests.devices.amd import AmdMachine
    from tests.devices.amd_watched import Watch

GPU0, GPU1 = (f'gpu="{index}",uuid="{uuid(index)}"' for index in range(2))


def test_a_gpu_that_is_well_states_all_that_is_asked(watch: Watch) -> None:
    page = watch().look()
    assert page[f"gpu_up{{{GPU0}}}"] == page[f"gpu_up{{{GPU1}}}"] == 1
    assert page[f"gpu_utilization_ratio{{{GPU1}}}"] == 0.91
    assert page[f'gpu_temperature_celsius{{{GPU0},sensor="junction"}}'] == 71
    assert page[f"gpu_energy_joules_total{{{GPU0}}}"] == pytest.approx(15259)
    assert page[f"gpu_power_limit_watts{{{GPU0}}}"] == 750
    assert page[f'gpu_ecc_errors_total{{{GPU0},kind="deferred"}}'] == 1
    assert page[f"gpu_pcie_link_generation{{{GPU0}}}"] == 5
    assert page[f'gpu_throttle_active{{{GPU0},reason="sw_power_cap"}}'] == 1
    assert page[f'gpu_xgmi_link_up{{{GPU0},link="1"}}'] == 1
    assert f'gpu_xgmi_link_up{{{GPU0},link="0"}}' not in page, "a link that is not in use is not down"
    assert page[f"gpu_xgmi_write_bytes_total{{{GPU0}}}"] == 4000 * 1024
    assert page['gpu_node_power_watts{vendor="amd",stat="sum"}'] == 640 + 641
    assert page['gpu_devices_expected{vendor="amd"}'] == page['gpu_devices_visible{vendor="amd"}'] == 2
    info = (
        f'gpu_info{{{GPU0},vendor="amd",model="AMD Instinct MI300X",pci_bus_id="0000:05:00.0",'
        'serial="0x1D3A9C0FFEE00000",driver="6.14.14",vbios="022.040.003.041.000001"}'
    )
    assert page[info] == 1


def test_gpus_to_which_the_driver_gives_one_uuid_are_shown_each(watch: Watch, machine: AmdMachine) -> None:
    machine.answer("amdsmi_get_gpu_device_uuid", uuid(0))
    watched = watch()
    watched.look()
    page = watched.look()
    shown = {name.partition(",vendor")[0]: name for name in page if name.startswith("gpu_info{")}
    for gpu, bus in enumerate(("0000:05:00.0", "0000:25:00.0")):
        labels = f'gpu="{gpu}",uuid="{uuid(0)}"'
        assert f'model="AMD Instinct MI300X",pci_bus_id="{bus}"' in shown[f"gpu_info{{{labels}"]
        assert page[f"gpu_power_watts{{{labels}}}"] == 640 + gpu


def test_no_blank_is_ever_on_the_page_and_a_value_that_comes_later_is(watch: Watch, machine: AmdMachine) -> None:
    blanks = {"gfx_activity": "N/A", "umc_activity": 0xFFFF, "mm_activity": "N/A"}
    machine.answer("amdsmi_get_gpu_activity", blanks, gpu=0)
    machine.answer("amdsmi_get_power_info", {"socket_power": 0, "current_socket_power": 0xFFFFFFFFFFFFFFFF}, gpu=0)
    machine.answer("amdsmi_get_gpu_memory_usage", 0xFFFFFFFFFFFFFFFF, gpu=0)
    machine.answer("amdsmi_get_gpu_total_ecc_count", {"correctable_count": 0xFFFFFFFFFFFFFFFF}, gpu=0)
    machine.answer("amdsmi_get_violation_status", {"acc_counter": "N/A", "active_ppt_pwr": "N/A"}, gpu=0)
    machine.answer("amdsmi_get_gpu_bad_page_info", "No bad pages found.", gpu=0)
    watched = watch()
    page = watched.look()
    silent = ("utilization", "memory_busy", "power_watts", "memory_used", "ecc", "throttle", "retired")
    assert [name for name in page if GPU0 in name and name.startswith(tuple(f"gpu_{each}" for each in silent))] == []
    assert max(page.values()) < 1e12
    assert page[f"gpu_up{{{GPU0}}}"] == 1
    machine.heal()
    assert watched.look()[f"gpu_power_watts{{{GPU0}}}"] == 640


def test_a_call_that_fails_costs_no_other_and_is_counted(watch: Watch, machine: AmdMachine) -> None:
    machine.fault("amdsmi_get_power_info", 12, gpu=0)
    machine.fault("amdsmi_get_pcie_info", "raise", gpu=0)
    watched = watch()
    watched.look()
    page = watched.look()
    assert f"gpu_power_watts{{{GPU0}}}" not in page
    assert page[f"gpu_power_watts{{{GPU1}}}"] == 641
    assert page[f"gpu_utilization_ratio{{{GPU0}}}"] == 0.9
    assert page[f"gpu_up{{{GPU0}}}"] == 1
    assert page[f'gpu_read_errors_total{{{GPU0},error="io_error"}}'] == 2
    assert page[f'gpu_read_errors_total{{{GPU0},error="ValueError"}}'] == 2


def test_what_a_gpu_or_a_version_does_not_have_is_no_error(watch: Watch, machine: AmdMachine) -> None:
    machine.without("amdsmi_get_violation_status", "amdsmi_get_gpu_xgmi_link_status", "AmdSmiMemoryType")
    machine.fault("amdsmi_get_gpu_total_ecc_count", 2)
    watched = watch()
    page = watched.look()
    watched.look()
    assert watched.errors == []
    assert page[f"gpu_up{{{GPU0}}}"] == 1
    assert not [name for name in page if name.startswith(("gpu_throttle", "gpu_xgmi_link", "gpu_memory_s", "gpu_ecc"))]
    assert not [name for name in page if name.startswith("gpu_read_errors")]
    assert machine.asked().count("amdsmi_get_gpu_total_ecc_count 0") == 1, "asked once, and not at each sample"


def test_time_under_a_limit_is_counted_as_its_share_of_the_time(
    watch: Watch, machine: AmdMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, name = watch(), f'gpu_throttle_seconds_total{{{GPU0},reason="sw_power_cap"}}'
    status = {"acc_counter": 1000, "acc_ppt_pwr": 100}
    clock = {"now": 100.0}
    monkeypatch.setattr("trainwarden_exporter.collectors.gpu.amdsmi.readings.time.monotonic", lambda: clock["now"])
    for now, said, expected in (
        (100.0, status, 0.0),
        (110.0, {"acc_counter": 6000, "acc_ppt_pwr": 1350}, 2.5),
        (120.0, {"acc_counter": 7000, "acc_ppt_pwr": 2350}, 12.5),
        (130.0, {"acc_counter": 10, "acc_ppt_pwr": 5}, 12.5),  # a reset, from which on it counts anew
        (140.0, {"acc_counter": 20, "acc_ppt_pwr": 10}, 17.5),
        (150.0, {"acc_counter": 1000, "acc_ppt_pwr": 0}, 17.5),
    ):
        clock["now"] = now
        machine.heal()
        machine.answer("amdsmi_get_violation_status", said, gpu=0)
        assert watched.look()[name] == pytest.approx(expected)
