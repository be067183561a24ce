"""The GPUs of this machine, where it has some: the exporter beside nvidia-smi, real work and a real fault."""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.exporter.nvidia.conftest import COMMAND, Exporter, parsed
from tests.integration.exporter.running import children
from tests.waiting import wait_until

_MIB, _MHZ = float(1 << 20), 1e6


class RealGpus:
    """Those of this machine, with its own driver."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def flags(self) -> list[str]:
        """Return those for the GPUs alone, whatever else the machine has."""
        return ["--collector.disable-defaults", "--collector.nvidia", f"--path.state={self._state}"]

    def environment(self) -> dict[str, str]:
        """Return that of this process."""
        return dict(os.environ)


@pytest.fixture
def smi() -> Callable[[str], list[dict[str, str]]]:
    """Ask the driver's own tool for properties of each GPU, separated by commas."""
    tool = shutil.which("nvidia-smi")
    if tool is None or not Path("/dev/nvidia0").exists():
        pytest.skip("no NVIDIA GPU is here")

    def asked(names: str) -> list[dict[str, str]]:
        command = [tool, f"--query-gpu={names}", "--format=csv,noheader,nounits"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        return [
            dict(zip(names.split(","), row, strict=True))
            for row in csv.reader(io.StringIO(text), skipinitialspace=True)
        ]

    return asked


@pytest.fixture
def real(smi: object, tmp_path: Path) -> Iterator[Exporter]:
    started = Exporter(RealGpus(tmp_path / "state"), tmp_path)
    yield started
    if started.process.poll() is None:
        started.end()


@contextmanager
def work(kind: str) -> Iterator[subprocess.Popen[str]]:
    """Run one kind of work on the first GPU until the end of the block."""
    if find_spec("torch") is None:
        pytest.skip("no NVIDIA GPU is here that PyTorch could use")
    command = [sys.executable, "-m", "tests.devices.gpu_work", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_every_gpu_that_nvidia_smi_lists_is_up_and_has_its_properties(
    smi: Callable[[str], list[dict[str, str]]], tmp_path: Path
) -> None:
    listed = smi("uuid,name,pci.bus_id,serial,driver_version,vbios_version")
    flags = ("--once", *RealGpus(tmp_path).flags())
    ended = subprocess.run([*COMMAND, *flags], check=True, capture_output=True, text=True, timeout=120)
    page = parsed(ended.stdout)
    assert [page.get(f"gpu_up{{gpu={gpu}}}") for gpu in range(len(listed))] == [1] * len(listed), ended.stderr
    (family,) = [each for each in text_string_to_metric_families(ended.stdout) if each.name == "gpu_info"]
    for gpu, (shown, sample) in enumerate(zip(listed, family.samples, strict=True)):
        labels = sample.labels
        assert labels["gpu"] == str(gpu)
        assert labels["uuid"] == shown["uuid"]
        assert labels["model"] == shown["name"]
        # nvidia-smi writes the domain with eight digits, the kernel with four.
        assert labels["pci_bus_id"].lower() == shown["pci.bus_id"].lower()[-len("0000:00:00.0") :]
        assert labels["serial"] == shown["serial"].replace("[N/A]", "")
        assert labels["driver"] == shown["driver_version"]
        assert labels["vbios"] == shown["vbios_version"].replace("[N/A]", "")
    assert page["trainwarden_collector_success{collector=nvidia}"] == 1


def test_its_values_are_those_of_nvidia_smi(smi: Callable[[str], list[dict[str, str]]], real: Exporter) -> None:
    exact = {
        "memory.total": ("gpu_memory_size_bytes{{gpu={0}}}", _MIB),
        "enforced.power.limit": ("gpu_power_limit_watts{{gpu={0}}}", 1.0),
        "pcie.link.width.current": ("gpu_pcie_link_width{{gpu={0}}}", 1.0),
        "ecc.errors.corrected.volatile.total": ("gpu_ecc_errors_total{{gpu={0},kind=corrected}}", 1.0),
        "ecc.errors.uncorrected.volatile.total": ("gpu_ecc_errors_total{{gpu={0},kind=uncorrected}}", 1.0),
        "ecc.errors.corrected.aggregate.total": ("gpu_ecc_lifetime_errors_total{{gpu={0},kind=corrected}}", 1.0),
        "ecc.errors.uncorrected.aggregate.total": ("gpu_ecc_lifetime_errors_total{{gpu={0},kind=uncorrected}}", 1.0),
    }
    about = {
        "temperature.gpu": ("gpu_temperature_celsius{{gpu={0},sensor=gpu}}", 1.0, 10.0),
        "temperature.memory": ("gpu_temperature_celsius{{gpu={0},sensor=memory}}", 1.0, 10.0),
        "power.draw": ("gpu_power_watts{{gpu={0}}}", 1.0, 60.0),
        "memory.used": ("gpu_memory_used_bytes{{gpu={0}}}", _MIB, 1024 * _MIB),
        "memory.reserved": ("gpu_memory_reserved_bytes{{gpu={0}}}", _MIB, 2 * _MIB),
        "clocks.mem": ("gpu_clock_hertz{{gpu={0},domain=memory}}", _MHZ, 100 * _MHZ),
    }
    wait_until(lambda: any(key.startswith("gpu_remapped_rows") for key in real.page()))
    page = real.page()
    for gpu, shown in enumerate(smi(",".join([*exact, *about]))):
        for name, (series, unit) in exact.items():
            if shown[name] != "[N/A]":
                assert page[series.format(gpu)] == pytest.approx(float(shown[name]) * unit, rel=0.001), name
        for name, (series, unit, off) in about.items():
            if shown[name] != "[N/A]":
                assert page[series.format(gpu)] == pytest.approx(float(shown[name]) * unit, abs=off), name


def test_a_kernel_that_waits_for_its_peers_keeps_the_gpu_busy_and_none_of_its_units(real: Exporter) -> None:
    def shown(name: str) -> float:
        return real.page().get(name + "{gpu=0}", -1.0)

    with work("train_bf16"):
        wait_until(lambda: shown("gpu_tensor_active_ratio") > 0.1 and shown("gpu_units_active_ratio") > 0.1)
    with work("generate"):
        wait_until(lambda: 0 <= shown("gpu_tensor_active_ratio") < 0.01 and shown("gpu_units_active_ratio") > 0.05)
    with work("wait_for_peers"):
        wait_until(lambda: shown("gpu_utilization_ratio") == 1 and 0 <= shown("gpu_units_active_ratio") < 0.01)
        assert shown("gpu_up") == 1


def test_a_fault_of_a_program_is_one_xid(real: Exporter) -> None:
    def xids() -> dict[str, float]:
        return {
            key: value for key, value in real.page().items() if key.startswith("gpu_xid_errors_total{gpu=0,") and value
        }

    wait_until(lambda: real.page().get("gpu_up{gpu=0}") == 1)
    before = xids()
    with work("fault") as process:
        _, errors = process.communicate(timeout=120)
    assert "illegal memory access" in errors
    grown = wait_until(
        lambda: {key: value - before.get(key, 0.0) for key, value in xids().items() if value != before.get(key)}
    )
    assert grown == {"gpu_xid_errors_total{gpu=0,xid=31}": 1.0}
    page = real.page()
    assert page["gpu_xid_info{xid=31,meaning=the job accessed memory that is not its own,action=restart_job}"] == 1
    assert page["gpu_up{gpu=0}"] == 1


def test_after_a_release_no_process_of_ours_holds_a_device(real: Exporter) -> None:
    def devices() -> list[str]:
        pids = [real.process.pid, *children(real.process.pid)]
        files = [
            str(each.readlink()) for pid in pids for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()
        ]
        return [name for name in files if name.startswith("/dev/nvidia")]

    wait_until(lambda: real.page().get("gpu_up{gpu=0}") == 1)
    assert devices()
    real.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: real.page()["trainwarden_exporter_released{}"] == 1 and not real.children())
    assert devices() == []
    real.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: real.page().get("gpu_up{gpu=0}") == 1)
