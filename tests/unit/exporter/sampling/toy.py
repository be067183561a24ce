"""Collectors that a child process runs: they do what their settings say. Found by name from the checkout's root."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwarden_exporter.collectors.gpu import metrics as gpu_metrics
from trainwarden_exporter.collectors.gpu import node_metrics
from trainwarden_exporter.core.metric import Families, Family
from trainwarden_exporter.sampling.calls import calling
from trainwarden_exporter.sampling.task import SampleTask


def build(settings: Mapping[str, Any]) -> Toy:
    folder = Path(settings["folder"])
    with (folder / "starts").open("a") as file:
        file.write("one\n")
    return Toy(folder, settings)


class Toy:
    """Devices, some of which hang; closing it leaves a mark."""

    name = "nvidia"

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._devices = range(settings.get("devices", 1))
        self._hanging = settings.get("hanging", [])
        self._seconds = settings.get("seconds", 0.0)
        self._timeout = settings["timeout"]
        self._prints = settings.get("prints", False)

    def collect(self) -> Iterable[Family]:
        if self._prints:
            libc = ctypes.CDLL(None)
            libc.printf(b"a library that prints\n")
            libc.fflush(None)
        families = Families()
        families.add(node_metrics.GPU_DEVICES_EXPECTED, len(self._devices), vendor="nvidia")
        return families.collected()

    def tasks(self) -> Sequence[SampleTask]:
        devices = [
            SampleTask(
                self.name, self._reader(device), 0.1, 0.3 if device in self._hanging else self._timeout, str(device)
            )
            for device in self._devices
        ]
        driver = SampleTask(self.name, self._reader("driver"), 0.1, 0.3, tier="driver")
        return [*devices, driver] if "driver" in self._hanging else devices

    def close(self) -> None:
        time.sleep(0.3)
        (self._folder / "closed").touch()

    def _reader(self, device: int | str) -> Any:
        def read() -> Iterable[Family]:
            if device in self._hanging:
                with calling("toy_call"):
                    threading.Event().wait()
            time.sleep(self._seconds)
            families = Families()
            families.add(gpu_metrics.GPU_UTILIZATION_RATIO, 0.5, gpu=str(device), uuid="")
            return families.collected()

        return read
