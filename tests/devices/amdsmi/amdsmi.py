"""Stands in for AMD's package of this name, 7.0.2: same functions, answers and exceptions, scripted by a file.

$FAKE_AMDSMI_SCRIPT names it, JSON; it is read anew at each call, so that what the GPUs do can change meanwhile:

    gpus     list of {"bdf", "uuid"}
    library  "ok", "hangs" (amdsmi_init, while it says so), "absent" (importing fails as the real one does), or a code
    missing  functions that this version does not have
    faults   list of {"gpu": index or null for all, "function": name or "*", "do": "hang", "wait", "raise" or a code}
    answers  list of {"gpu", "function", "answer"}: instead of what a well GPU answers

What it was asked is noted in the file of that name with the ending `.asked`, one line a call.
"""

from __future__ import annotations

import json
import os
import threading
import time
from enum import IntEnum
from pathlib import Path
from typing import Any

_SCRIPT = Path(os.environ["FAKE_AMDSMI_SCRIPT"])
_WELL: dict[str, Any] = json.loads(Path(__file__).with_name("mi300x.json").read_text())
_BEGUN = time.monotonic()
_state = {"open": False}


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code: int) -> None:
        super().__init__(abs(err_code))
        self.err_code = abs(err_code)


class AmdSmiParameterException(AmdSmiException):
    def __init__(self, received: object, expected: type) -> None:
        super().__init__(None)
        self.err_code = None
        self.err_msg = f"Invalid parameter:\nActual type: {type(received)}\nExpected type: {expected}"


class AmdSmiClkType(IntEnum):
    SYS = 0
    GFX = 0
    DF = 1
    DCEF = 2
    SOC = 3
    MEM = 4
    PCIE = 5
    VCLK0 = 6
    VCLK1 = 7
    DCLK0 = 8
    DCLK1 = 9


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0
    MAX = 1


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class _Handle:
    """Opaque to callers, as a pointer is."""

    def __init__(self, index: int) -> None:
        self.index = index


def _script() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_SCRIPT.read_text())
    return found


def _act(do: object) -> None:
    if do == "hang":
        threading.Event().wait()
    elif do == "wait":
        time.sleep(0.3)
    elif do == "raise":
        raise ValueError("invalid literal for int() with base 16: ''")
    else:
        raise AmdSmiLibraryException(int(str(do)))


def _asked(function: str, gpu: int | None = None) -> None:
    with _SCRIPT.with_suffix(".asked").open("a") as stream:
        stream.write(f"{function} {'-' if gpu is None else gpu}\n")


def _of(function: str, handle: object, well: Any) -> Any:
    if not isinstance(handle, _Handle):
        raise AmdSmiParameterException(handle, _Handle)
    _asked(function, handle.index)
    if not _state["open"]:
        raise AmdSmiLibraryException(32)
    script = _script()
    for fault in script.get("faults", []):
        if fault["gpu"] in {None, handle.index} and fault["function"] in {"*", function}:
            _act(fault["do"])
    for each in script.get("answers", []):
        if each["gpu"] in {None, handle.index} and each["function"] == function:
            return each["answer"]
    return well


def _checked(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise AmdSmiParameterException(value, kind)


def amdsmi_init(flag: int = 2) -> None:
    _asked("amdsmi_init")
    while (library := _script().get("library", "ok")) == "hangs":
        time.sleep(0.02)
    if library != "ok":
        raise AmdSmiLibraryException(int(library))
    _state["open"] = True


def amdsmi_shut_down() -> None:
    _asked("amdsmi_shut_down")
    _state["open"] = False


def amdsmi_get_processor_handles() -> list[_Handle]:
    _asked("amdsmi_get_processor_handles")
    return [_Handle(index) for index, gpu in enumerate(_script()["gpus"]) if gpu.get("found", True)]


def amdsmi_get_gpu_device_bdf(processor_handle: _Handle) -> str:
    return str(_of("amdsmi_get_gpu_device_bdf", processor_handle, _script()["gpus"][processor_handle.index]["bdf"]))


def amdsmi_get_gpu_device_uuid(processor_handle: _Handle) -> str:
    return str(_of("amdsmi_get_gpu_device_uuid", processor_handle, _script()["gpus"][processor_handle.index]["uuid"]))


def amdsmi_get_gpu_asic_info(processor_handle: _Handle) -> Any:
    info = {
        "market_name": "AMD Instinct MI300X",
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "subvendor_id": "0x1002",
        "device_id": "0x74a1",
        "rev_id": "0x00",
        "asic_serial": "0x%016X" % (0x1D3A9C0FFEE00000 + processor_handle.index),
        "oam_id": processor_handle.index,
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
        "subsystem_id": "0x74a1",
    }
    return _of("amdsmi_get_gpu_asic_info", processor_handle, info)


def amdsmi_get_gpu_board_info(processor_handle: _Handle) -> Any:
    info = {
        "model_number": "102-G30211-00",
        "product_serial": f"69234300{processor_handle.index:04d}",
        "fru_id": "113-AMDG302110038V02",
        "product_name": "AMD Instinct MI300X OAM",
        "manufacturer_name": "AMD",
    }
    return _of("amdsmi_get_gpu_board_info", processor_handle, info)


def amdsmi_get_gpu_vbios_info(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_gpu_vbios_info", processor_handle, _WELL["amdsmi_get_gpu_vbios_info"])


def amdsmi_get_gpu_driver_info(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_gpu_driver_info", processor_handle, _WELL["amdsmi_get_gpu_driver_info"])


def amdsmi_get_gpu_activity(processor_handle: _Handle) -> Any:
    activity = {"gfx_activity": 90 + processor_handle.index, "umc_activity": 35, "mm_activity": "N/A"}
    return _of("amdsmi_get_gpu_activity", processor_handle, activity)


def amdsmi_get_power_info(processor_handle: _Handle) -> Any:
    power = {
        "socket_power": 640 + processor_handle.index,
        "current_socket_power": 640 + processor_handle.index,
        "average_socket_power": "N/A",
        "gfx_voltage": "N/A",
        "soc_voltage": "N/A",
        "mem_voltage": "N/A",
        "power_limit": 750000000,
    }
    return _of("amdsmi_get_power_info", processor_handle, power)


def amdsmi_get_power_cap_info(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_power_cap_info", processor_handle, _WELL["amdsmi_get_power_cap_info"])


def amdsmi_get_clock_info(processor_handle: _Handle, clock_type: AmdSmiClkType) -> Any:
    _checked(clock_type, AmdSmiClkType)
    clock = {0: 2100, 3: 1400, 4: 1300, 6: 29}.get(int(clock_type), "N/A")
    info = {"clk": clock, "min_clk": 132, "max_clk": 2100, "clk_locked": False, "clk_deep_sleep": "N/A"}
    return _of("amdsmi_get_clock_info", processor_handle, info)


def amdsmi_get_temp_metric(
    processor_handle: _Handle, sensor_type: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric
) -> Any:
    _checked(sensor_type, AmdSmiTemperatureType)
    _checked(metric, AmdSmiTemperatureMetric)
    if sensor_type == AmdSmiTemperatureType.EDGE:  # an MI300X has none
        _of("amdsmi_get_temp_metric", processor_handle, 0)
        raise AmdSmiLibraryException(2)
    return _of("amdsmi_get_temp_metric", processor_handle, {1: 71, 2: 58}[int(sensor_type)])


def amdsmi_get_gpu_memory_total(processor_handle: _Handle, mem_type: AmdSmiMemoryType) -> Any:
    _checked(mem_type, AmdSmiMemoryType)
    return _of("amdsmi_get_gpu_memory_total", processor_handle, 206141652992)


def amdsmi_get_gpu_memory_usage(processor_handle: _Handle, mem_type: AmdSmiMemoryType) -> Any:
    _checked(mem_type, AmdSmiMemoryType)
    return _of("amdsmi_get_gpu_memory_usage", processor_handle, 171798691840)


def amdsmi_get_energy_count(processor_handle: _Handle) -> Any:
    count = {"energy_accumulator": 1000000000, "counter_resolution": 15.259, "timestamp": 123456789}
    return _of("amdsmi_get_energy_count", processor_handle, count)


def amdsmi_get_gpu_total_ecc_count(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_gpu_total_ecc_count", processor_handle, _WELL["amdsmi_get_gpu_total_ecc_count"])


def amdsmi_get_gpu_bad_page_info(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_gpu_bad_page_info", processor_handle, [])


def amdsmi_get_pcie_info(processor_handle: _Handle) -> Any:
    return _of("amdsmi_get_pcie_info", processor_handle, _WELL["amdsmi_get_pcie_info"])


def amdsmi_get_gpu_xgmi_link_status(processor_handle: _Handle) -> Any:
    states = ["X" if link == processor_handle.index else "U" for link in range(8)]
    return _of("amdsmi_get_gpu_xgmi_link_status", processor_handle, {"status": states, "total_links": 8})


def amdsmi_get_link_metrics(processor_handle: _Handle) -> Any:
    links = [
        {
            "bdf": gpu["bdf"],
            "bit_rate": 32,
            "max_bandwidth": 512,
            "link_type": 2,
            "read": 1000 * (index + 1),
            "write": 2000 * (index + 1),
        }
        for index, gpu in enumerate(_script()["gpus"][:8])
        if index != processor_handle.index
    ]
    return _of("amdsmi_get_link_metrics", processor_handle, {"num_links": len(links), "links": links})


def amdsmi_get_violation_status(processor_handle: _Handle) -> Any:
    """Of each second it is held down by its limit of power for a quarter."""
    steps = int((time.monotonic() - _BEGUN) * 1000)
    status: dict[str, Any] = {"reference_timestamp": 1, "violation_timestamp": 1, "acc_counter": 5000 + steps}
    for key in ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm", "gfx_clk_below_host_limit"):
        held = key == "ppt_pwr"
        status[f"acc_{key}"] = 700 + steps // 4 if held else 0
        status[f"per_{key}"] = 25 if held else 0
        status[f"active_{key}"] = held
    return _of("amdsmi_get_violation_status", processor_handle, status)


def _as_scripted() -> None:
    script = _script()
    if script.get("library") == "absent":
        print("libamd_smi.so: cannot open shared object file: No such file or directory")
        print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")
        raise KeyError("libamd_smi.so")
    for function in script.get("missing", []):
        del globals()[function]


_as_scripted()
