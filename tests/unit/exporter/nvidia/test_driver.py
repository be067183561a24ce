"""NVML as a whole: it does not start, hangs, or is lost."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from trainwarden_exporter.collectors.gpu.collector import GpuCollector, build
from trainwarden_exporter.collectors.gpu.driver import DriverUnavailable
from trainwarden_exporter.collectors.gpu.nvml.driver import NvmlDriver
from trainwarden_exporter.core.exposition import encode_text


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuCollector:
    """A collector on a node with one GPU and without the wrapper of NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    times = {"interval": 5.0, "slow_interval": 30.0, "timeout": 10.0}
    return build(
        {
            "vendor": "nvidia",
            "sysfs": str(tmp_path),
            "kernel_log": str(tmp_path / "kmsg"),
            "expected": None,
            "by_bus": True,
            **times,
        }
    )


class Nvml:
    """The functions of its wrapper that open it; `init` is what nvmlInit does."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.init: Callable[[], object] = lambda: None
        self.version: Callable[[], str] = lambda: "570.133.20"

    def start(self) -> None:
        self.done.append("init")
        self.init()

    def stop(self) -> None:
        self.done.append("shutdown")

    def driver_version(self) -> str:
        return self.version()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setattr(pynvml, "nvmlInit", nvml.start)
    monkeypatch.setattr(pynvml, "nvmlShutdown", nvml.stop)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", nvml.driver_version)
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", lambda: None)
    return nvml


@pytest.fixture
def hanging(nvml: Nvml) -> Iterator[threading.Event]:
    """Lets nvmlInit hang until it is set."""
    event = threading.Event()
    nvml.init = event.wait
    yield event
    event.set()


def fails(code: int) -> Callable[[], str]:
    def function() -> str:
        raise pynvml.NVMLError(code)

    return function


def driver(retry_seconds: float = 30.0) -> NvmlDriver:
    return NvmlDriver(Path("/nonexistent/kmsg"), retry_seconds)


def opened(driver: NvmlDriver) -> str | None:
    driver.open()
    return driver.error(30)


def test_without_the_wrapper_the_gpus_of_the_bus_are_down_and_the_sample_fails(collector: GpuCollector) -> None:
    collector.collect()
    by_tier = {part.tier: part for part in collector.tasks()}
    page = encode_text(by_tier["node"].read()).decode()
    assert 'gpu_up{gpu="0",uuid=""} 0.0' in page
    assert 'gpu_driver_error_info{vendor="nvidia",error="pynvml_not_installed"} 1.0' in page
    with pytest.raises(DriverUnavailable, match=r"trainwarden\[nvidia\]"):
        by_tier["driver"].read()


def test_a_failure_that_lasts_does_not_grow(collector: GpuCollector) -> None:
    collector.collect()
    driver = next(part for part in collector.tasks() if part.tier == "driver")
    depths = []
    for _ in range(3):
        with pytest.raises(DriverUnavailable) as caught:
            driver.read()
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[1] == depths[2]


def test_a_library_that_is_slow_to_open_is_not_reported_to_hang(nvml: Nvml, hanging: threading.Event) -> None:
    nvidia, errors = driver(), list[str | None]()
    nvidia.open()
    assert nvidia.error(0.0) == "nvmlInit_v2_hangs"
    asks = threading.Thread(target=lambda: errors.append(nvidia.error(60)))
    asks.start()
    hanging.set()
    asks.join(60)
    assert errors == [None]
    assert nvml.done == ["init"]


def test_nothing_is_reported_to_be_released_while_opening_hangs(nvml: Nvml, hanging: threading.Event) -> None:
    nvidia = driver()
    nvidia.open()
    closes = threading.Thread(target=nvidia.close)
    closes.start()
    closes.join(0.1)
    assert closes.is_alive()
    hanging.set()
    closes.join(30)
    assert nvml.done == ["init", "shutdown"], "what was opened after all is closed"


def test_a_driver_that_is_not_loaded_is_tried_again_after_a_while(nvml: Nvml) -> None:
    nvml.init = fails(9)
    nvidia = driver()
    assert [opened(nvidia) for _ in range(3)] == ["driver_not_loaded"] * 3
    assert nvml.done == ["init"]
    retrying = driver(retry_seconds=0.0)
    assert opened(retrying) == "driver_not_loaded"
    nvml.init = lambda: None
    assert opened(retrying) is None
    assert (nvml.done, retrying.generation, retrying.version) == (["init"] * 3, 1, "570.133.20")


def test_a_driver_that_was_lost_is_opened_anew_at_once(nvml: Nvml) -> None:
    nvidia = driver()
    assert [opened(nvidia) for _ in range(2)] == [None, None]
    nvidia.reopen()
    assert [opened(nvidia) for _ in range(2)] == [None, None]
    assert (nvml.done, nvidia.generation) == (["init", "shutdown", "init"], 2)


def test_what_was_initialised_and_fails_then_is_shut_down_before_the_next_attempt(nvml: Nvml) -> None:
    nvml.version = fails(18)
    nvidia = driver(retry_seconds=0.0)
    assert [opened(nvidia) for _ in range(2)] == ["driver_library_mismatch"] * 2
    nvidia.close()
    assert nvml.done == ["init", "shutdown"] * 2


def test_whatever_the_wrapper_raises_is_why_no_gpu_can_be_asked(nvml: Nvml) -> None:
    nvml.version = lambda: str(1 / 0)
    nvidia = driver()
    assert opened(nvidia) == "ZeroDivisionError"
    assert "division by zero" in str(nvidia.failure)
