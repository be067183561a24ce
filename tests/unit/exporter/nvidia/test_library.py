"""NVML as a whole, where it does not start."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from trainwarden_exporter.exposition import encode_text
from trainwarden_exporter.nvidia.collector import NvidiaCollector, build
from trainwarden_exporter.nvidia.library import Library, NvmlUnavailable


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


def test_without_the_wrapper_the_gpus_of_the_bus_are_down_and_the_sample_fails(collector: NvidiaCollector) -> None:
    collector.collect()
    by_tier = {part.tier: part for part in collector.parts()}
    page = encode_text(by_tier["node"].read()).decode()
    assert 'gpu_up{gpu="0",uuid=""} 0.0' in page
    assert 'gpu_driver_error_info{vendor="nvidia",error="pynvml_not_installed"} 1.0' in page
    with pytest.raises(NvmlUnavailable, match=r"trainwarden\[nvidia\]"):
        by_tier["driver"].read()


def test_a_failure_that_lasts_does_not_grow(collector: NvidiaCollector) -> None:
    library = Library()
    depths = []
    for _ in range(3):
        with pytest.raises(NvmlUnavailable) as caught:
            library.open()
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[1] == depths[2]
