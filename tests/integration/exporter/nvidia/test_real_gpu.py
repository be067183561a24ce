"""The GPUs of this machine, where it has some."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.exporter.nvidia.conftest import COMMAND, parsed


@pytest.fixture
def listed() -> list[str]:
    """What the driver's own tool says of the GPUs: their UUIDs."""
    tool = shutil.which("nvidia-smi")
    if tool is None or not Path("/dev/nvidia0").exists():
        pytest.skip("no NVIDIA GPU is here")
    command = [tool, "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split()


def test_every_gpu_that_nvidia_smi_lists_is_up(listed: list[str]) -> None:
    flags = ("--once", "--collector.disable-defaults", "--collector.nvidia", "--no-collector.nvidia.pci-bus")
    ended = subprocess.run([*COMMAND, *flags], check=True, capture_output=True, text=True, timeout=120)
    page = parsed(ended.stdout)
    assert [page.get(f"gpu_up{{gpu={gpu}}}") for gpu in range(len(listed))] == [1] * len(listed), ended.stderr
    assert all(f'uuid="{uuid}"' in ended.stdout for uuid in listed)
    for name in ("gpu_memory_size_bytes", "gpu_power_watts", "gpu_temperature_celsius"):
        assert any(key.startswith(name) for key in page), name
    assert page["trainwarden_collector_success{collector=nvidia}"] == 1
