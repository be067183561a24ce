"""Nothing holds a GPU while it is to be reset."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter
from tests.waiting import wait_until

Serve = Callable[..., Exporter]


def test_a_release_shuts_nvml_down_and_what_comes_after_is_looked_at_anew(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2).kernel_says("Linux"))
    wait_until(lambda: exporter.page().get("gpu_up{gpu=1}") == 1)
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: exporter.page()["trainwarden_exporter_released{}"] == 1 and not exporter.children())
    done = [what for _, what in node.calls()]
    assert done.count("open") == 2
    assert done[-2:] == ["no events", "shutdown"], "what was opened is closed, the events first"
    assert not [key for key in exporter.page() if key.startswith("gpu_")]
    node.plug_in(0, power=300_000)
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: exporter.page().get("gpu_power_watts{gpu=0}") == 300)
    assert exporter.page()["trainwarden_exporter_released{}"] == 0
    assert len({process for process, _ in node.calls()}) == 2


def test_a_gpu_that_hangs_does_not_keep_the_others_from_being_released(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2))
    wait_until(lambda: exporter.page().get("gpu_up{gpu=1}") == 1)
    node.hang(0, "nvmlDeviceGetTemperature")
    wait_until(lambda: exporter.page().get("gpu_up{gpu=0}") == 0)
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: exporter.page()["trainwarden_exporter_released{}"] == 1 and not exporter.children())
    node.set(0, **{"hang.nvmlDeviceGetTemperature": 0})
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: exporter.page().get("gpu_up{gpu=0}") == 1)
