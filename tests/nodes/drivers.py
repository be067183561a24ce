"""The stand-ins of the drivers that go with a node: the GPUs on its bus, and what is wrong with them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.devices.amd import AmdMachine
from tests.devices.nvml import FakeNvml
from tests.nodes.fixtures import MI300X_GPUS, P4D_GPUS, P5_GPUS

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA = {"p5": ("h100", P5_GPUS), "p5en": ("h200", P5_GPUS), "p4d": ("a100", P4D_GPUS)}


def environment(node: str, folder: Path) -> dict[str, str]:
    """Return the environment in which the exporter finds the drivers of a node; `folder` is an empty one for them."""
    if node in _NVIDIA:
        preset, addresses = _NVIDIA[node]
        return _nvml(folder, preset, addresses).environment()
    if node == "half_dead":
        return _nvml(folder, "h100", (*P5_GPUS[:6], P5_GPUS[7])).lose(2).environment()
    if node == "mi300x":
        machine = AmdMachine(folder)
        assert tuple(machine.addresses) == MI300X_GPUS
        return machine.environment()
    return dict(os.environ)


def _nvml(folder: Path, preset: str, addresses: tuple[str, ...]) -> FakeNvml:
    fake = FakeNvml(folder).gpus(len(addresses), preset)
    for gpu, address in enumerate(addresses):
        fake.set(gpu, bus=address, index=gpu, serial=f"16509230{gpu:05}")
    return fake
