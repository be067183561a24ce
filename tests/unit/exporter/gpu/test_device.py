"""The two tiers of one GPU run in threads of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from trainwarden_exporter.collectors.gpu.calls import GpuDown
from trainwarden_exporter.collectors.gpu.device import DriverTime, GpuDevice
from trainwarden_exporter.collectors.gpu.driver import OpenGpu
from trainwarden_exporter.collectors.gpu.nvml.driver import NvmlDriver
from trainwarden_exporter.collectors.gpu.state import GpuReading, GpuState
from trainwarden_exporter.collectors.gpu.sums import GpuSums

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.nvml.readings import NvmlFastTier
    from trainwarden_exporter.core.metric import Families


class FastTier:
    """Answers until the GPU is down."""

    answered = 0
    last_error = ""
    is_down = False

    def read(self, families: Families, gpu: dict[str, str]) -> GpuReading:  # as the driver's
        if self.is_down:
            raise GpuDown("gpu_is_lost")
        self.answered += 1
        return GpuReading()


class Driver(NvmlDriver):
    """An open library; `meanwhile` is called where a thread looks whether it is open."""

    def __init__(self, kernel_log: Path, tier: FastTier) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        super().__init__(kernel_log)
        self.generation, self._tier = 1, tier

    @property
    def is_open(self) -> bool:
        self.meanwhile()
        return True

    @is_open.setter
    def is_open(self, value: bool) -> None:
        pass

    def open_gpu(self, state: GpuState) -> OpenGpu:
        return OpenGpu(state.bus)

    def fast_tier(self, handle: Any, state: GpuState) -> NvmlFastTier:  # as the driver's
        return cast("NvmlFastTier", self._tier)

    def slow_tier(self, handle: Any, state: GpuState) -> NoReturn:  # as the driver's
        pytest.fail("a GPU that is down was read")


def test_a_gpu_that_goes_down_under_a_slow_sample_has_no_slow_series(tmp_path: Path) -> None:
    tier = FastTier()
    driver = Driver(tmp_path / "kmsg", tier)
    state = GpuState("0000:3b:00.0", {"gpu": "0", "uuid": ""})
    gpu = GpuDevice(
        state, driver, lambda *_: None, DriverTime(), GpuSums(driver.vendor, {}, 5.0), slow_interval=30.0, timeout=5.0
    )
    gpu.fast()

    def go_down() -> None:
        driver.meanwhile = lambda: None
        tier.is_down = True
        gpu.fast()

    driver.meanwhile = go_down
    assert gpu.slow() == []
    assert gpu.state.error == "gpu_is_lost"
