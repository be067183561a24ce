"""What a real NVIDIA GPU shows in each state of a training, and what reading it costs. Takes PyTorch with CUDA.

Not among the benchmarks that run by default: few machines have a GPU.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.scrapes_process import cpu_seconds, pss_mib
from benchmarks.tables import Table

_SETTLE_SECONDS, _SAMPLES = 5.0, 8
_USUAL = "train_bf16"
_STATES = {
    "": "no process",
    _USUAL: "training in bfloat16",
    "train_tf32": "training in float32 with TF32",
    "train_float32": "training in float32",
    "slow_data": "training in bfloat16, a second of waiting for each batch",
    "generate": "generating, one token at a time",
    "copy": "copying within its memory",
    "wait_for_peers": "a kernel polls for its peers",
    "wait_for_peers_16_warps": "the same, with 16 warps in each block",
    "wait_for_data": "the process waits for data",
    "checkpoint": "writing checkpoints",
}
_COLUMNS = {
    "power, W": "gpu_power_watts{}",
    "utilization": "gpu_utilization_ratio{}",
    "SM active": "gpu_sm_active_ratio{}",
    "tensor": "gpu_tensor_active_ratio{}",
    "fp32": "gpu_pipe_active_ratio{fp32}",
    "fp16": "gpu_pipe_active_ratio{fp16}",
    "int": "gpu_pipe_active_ratio{int}",
    "memory": "gpu_memory_bandwidth_ratio{}",
    "PCIe, MB/s": "gpu_pcie_bytes_per_second{rx}",
    "SM clock, MHz": "gpu_clock_hertz{sm}",
}
_SCALES = {"PCIe, MB/s": 1e-6, "SM clock, MHz": 1e-6}


def measure() -> list[Table]:
    """Return what the first GPU shows by state, and the cost of reading it."""
    shown = {}
    with _exporter() as (address, pid):
        for kind in _STATES:
            shown[kind] = _shown(address, kind)
        cost = _cost(address, pid)
        model = next(iter(_page(address)["gpu_info{}"]))
    usual = shown[_USUAL]["power, W"]
    rows = [
        [
            name,
            *(_text(label, shown[kind].get(label)) for label in _COLUMNS),
            f"{shown[kind]['power, W'] / usual:.2f}",
        ]
        for kind, name in _STATES.items()
    ]
    note = f"Means of {_SAMPLES} samples, one a second, on one {model}; the last column: power over that in bfloat16."
    return [Table(["state", *_COLUMNS, "share of power"], rows, note), cost]


def _shown(address: str, kind: str) -> dict[str, float]:
    with _work(kind):
        time.sleep(_SETTLE_SECONDS)
        samples = []
        for _ in range(_SAMPLES):
            time.sleep(1.0)
            samples.append(_values(address))
    return {
        label: fmean(sample[series] for sample in samples if series in sample) * _SCALES.get(label, 1.0)
        for label, series in _COLUMNS.items()
        if any(series in sample for sample in samples)
    }


def _cost(address: str, pid: int) -> Table:
    before, spent, began = _values(address), cpu_seconds(pid), time.monotonic()
    time.sleep(20.0)
    after, seconds = _values(address), time.monotonic() - began
    rows = [["processor time of the exporter, of a core", f"{100 * (cpu_seconds(pid) - spent) / seconds:.2f} %"]]
    for series in sorted(before):
        if series.startswith("trainwarden_driver_seconds_total"):
            share = (after[series] - before[series]) / seconds
            rows.append([f"time in the driver's calls, `{series}`", f"{1e3 * share:.2f} ms a second"])
    rows.append(["memory (PSS) of the exporter and its process for GPUs", f"{pss_mib(pid):.1f} MiB"])
    return Table(["reading one GPU, the fast values every second", ""], rows)


def _text(label: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if "," in label else f"{value:.3f}"


@contextmanager
def _exporter() -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        port = Path(folder, "port")
        command = [
            *(sys.executable, "-m", "trainwarden_exporter", "--collector.disable-defaults", "--collector.nvidia"),
            *("--collector.nvidia.interval=1s", "--no-collector.nvidia.pci-bus", f"--path.state={folder}/state"),
            *("--web.listen-address=127.0.0.1:0", f"--web.port-file={port}"),
        ]
        process = subprocess.Popen(command)
        try:
            while not port.exists():
                if process.poll() is not None:
                    raise SystemExit("the exporter did not start")
                time.sleep(0.1)
            yield port.read_text().strip(), process.pid
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def _work(kind: str) -> Iterator[None]:
    if not kind:
        yield
        return
    command = [sys.executable, "-m", "tests.devices.gpu_work", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                raise SystemExit(f"the work {kind} did not begin")
            yield
        finally:
            process.kill()


def _values(address: str) -> dict[str, float]:
    return {series: value for series, found in _page(address).items() for value in found.values()}


def _page(address: str) -> dict[str, dict[str, float]]:
    """Return the values by `name{what}`, where `what` are the labels that divide a GPU's values, then by model."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            what = ",".join(
                sample.labels[name] for name in ("pipe", "direction", "domain", "tier") if name in sample.labels
            )
            found.setdefault(f"{sample.name}{{{what}}}", {})[sample.labels.get("model", "")] = sample.value
    return found
