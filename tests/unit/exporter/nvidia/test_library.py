"""NVML as a whole, where it does not start."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from trainwarden_exporter.collectors.gpu.nvidia import library as room
from trainwarden_exporter.collectors.gpu.nvidia.collector import NvidiaCollector, build
from trainwarden_exporter.collectors.gpu.nvidia.library import Library, NvmlUnavailable
from trainwarden_exporter.core.exposition import encode_text


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaCollector:
    """A collector on a node with one GPU and without the wrapper of NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    times = {"interval": 5.0, "slow_interval": 30.0, "timeout": 10.0}
    return build(
        {"sysfs": str(tmp_path), "kernel_log": str(tmp_path / "kmsg"), "expected": None, "by_bus": True, **times}
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

    def told(self) -> str:
        return self.version()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setattr(pynvml, "nvmlInit", nvml.start)
    monkeypatch.setattr(pynvml, "nvmlShutdown", nvml.stop)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", nvml.told)
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


def opened(library: Library) -> str | None:
    library.open(find=False)
    return library.error(30)


def test_without_the_wrapper_the_gpus_of_the_bus_are_down_and_the_sample_fails(collector: NvidiaCollector) -> None:
    collector.collect()
    by_tier = {part.tier: part for part in collector.tasks()}
    page = encode_text(by_tier["node"].read()).decode()
    assert 'gpu_up{gpu="0",uuid=""} 0.0' in page
    assert 'gpu_driver_error_info{vendor="nvidia",error="pynvml_not_installed"} 1.0' in page
    with pytest.raises(NvmlUnavailable, match=r"trainwarden\[nvidia\]"):
        by_tier["driver"].read()


def test_a_failure_that_lasts_does_not_grow(collector: NvidiaCollector) -> None:
    collector.collect()
    driver = next(part for part in collector.tasks() if part.tier == "driver")
    depths = []
    for _ in range(3):
        with pytest.raises(NvmlUnavailable) as caught:
            driver.read()
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[1] == depths[2]


def test_a_library_that_is_slow_to_open_is_not_said_to_hang(nvml: Nvml, hanging: threading.Event) -> None:
    library, said = Library(lambda: None), list[str | None]()
    library.open(find=False)
    assert library.error(0.0) == "nvmlInit_v2_hangs"
    asks = threading.Thread(target=lambda: said.append(library.error(60)))
    asks.start()
    hanging.set()
    asks.join(60)
    assert said == [None]
    assert nvml.done == ["init"]


def test_nothing_is_said_to_be_released_while_opening_hangs(nvml: Nvml, hanging: threading.Event) -> None:
    library = Library(lambda: None)
    library.open(find=False)
    closes = threading.Thread(target=library.close)
    closes.start()
    closes.join(0.1)
    assert closes.is_alive()
    hanging.set()
    closes.join(30)
    assert nvml.done == ["init", "shutdown"], "what was opened after all is closed"


def test_a_driver_that_is_not_loaded_is_tried_again_after_a_while(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.init = fails(9)
    library = Library(lambda: None)
    assert [opened(library) for _ in range(3)] == ["driver_not_loaded"] * 3
    assert nvml.done == ["init"]
    monkeypatch.setattr(room, "RETRY_SECONDS", 0.0)
    nvml.init = lambda: None
    assert opened(library) is None
    assert (nvml.done, library.generation, library.driver) == (["init", "init"], 1, "570.133.20")


def test_a_driver_that_was_lost_is_opened_anew_at_once(nvml: Nvml) -> None:
    library = Library(lambda: None)
    assert [opened(library) for _ in range(2)] == [None, None]
    library.lost.set()
    assert [opened(library) for _ in range(2)] == [None, None]
    assert (nvml.done, library.generation) == (["init", "shutdown", "init"], 2)


def test_what_was_initialised_and_fails_then_is_shut_down_before_the_next_attempt(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "RETRY_SECONDS", 0.0)
    nvml.version = fails(18)
    library = Library(lambda: None)
    assert [opened(library) for _ in range(2)] == ["driver_library_mismatch"] * 2
    library.close()
    assert nvml.done == ["init", "shutdown"] * 2


def test_whatever_the_wrapper_raises_is_why_no_gpu_can_be_asked(nvml: Nvml) -> None:
    nvml.version = lambda: str(1 / 0)
    library = Library(lambda: None)
    assert opened(library) == "ZeroDivisionError"
    assert "division by zero" in str(library.failure)
