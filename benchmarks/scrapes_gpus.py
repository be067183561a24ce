"""What a sample of eight GPUs takes: of each tier by itself, in a process that loads a stand-in of NVIDIA's library."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.scrapes_cycles import Cycle, cycle_of
from tests.devices.nvml import FakeNvml
from trainwarden_exporter.collectors.gpu.collector import build
from trainwarden_exporter.sampling.sampler import Sampler

GPUS = 8


def cycles(interval: float, timeout: float) -> dict[str, Cycle]:
    """The cycle of all GPUs, by tier; times in seconds, as the exporter's flags say."""
    with tempfile.TemporaryDirectory() as folder:
        nvml = FakeNvml(Path(folder)).gpus(GPUS)
        settings = {
            "vendor": "nvidia", "sysfs": str(nvml.sysfs), "kernel_log": str(nvml.rootfs / "dev/kmsg"),
            "interval": interval, "slow_interval": 0.0, "timeout": timeout, "expected": GPUS, "by_bus": True,
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.scrapes_gpus", json.dumps(settings)]
        found = subprocess.run(command, env=nvml.environment(), check=True, capture_output=True, text=True).stdout
    return {tier: Cycle(*values) for tier, values in json.loads(found).items()}


def _measured(settings: dict[str, Any]) -> dict[str, Cycle]:
    collector = build(settings)
    collector.collect()
    tiers: dict[str, list[Sampler]] = {}
    for part in collector.tasks():
        if part.device:
            tiers.setdefault(part.tier, []).append(Sampler(part))
    found = {tier: cycle_of(samplers) for tier, samplers in tiers.items()}
    collector.close()
    return found


if __name__ == "__main__":
    print(json.dumps(_measured(json.loads(sys.argv[1]))))
