"""The collector of AMD GPUs in its own process, over the stand-in of their library."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.devices.amd import AmdMachine, uuid
from tests.waiting import wait_until
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = (sys.executable, "-m", "trainwarden_exporter", "--once", "--collector.disable-defaults")


def once(machine: AmdMachine, *flags: str) -> str:
    command = [*COMMAND, "--collector.amd", *machine.flags(), *flags]
    return subprocess.run(
        command, env=machine.environment(), capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.fixture
def machine(tmp_path: Path) -> AmdMachine:
    return AmdMachine(tmp_path)


@pytest.fixture
def collection(machine: AmdMachine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collection]:
    """Samples every 0.2 s; more than two seconds are too long."""
    for name in ("PYTHONPATH", "FAKE_AMDSMI_SCRIPT"):
        monkeypatch.setenv(name, machine.environment()[name])
    settings = {
        "vendor": "amd",
        "sysfs": str(machine.sysfs),
        "interval": 0.2,
        "slow_interval": 0.2,
        "timeout": 2.0,
        "expected": None,
        "by_bus": True,
    }
    collection = Collection(
        [SubprocessCollector(ChildSpec("amd", "trainwarden_exporter.collectors.gpu.collector", 0.2, 2.0, settings))]
    )
    collection.start()
    yield collection
    collection.stop()


def test_the_command_shows_eight_gpus_and_takes_part_by_itself_where_the_bus_has_them(machine: AmdMachine) -> None:
    text = once(machine)
    assert text.count("gpu_up{") == 8
    assert 'trainwarden_collector_success{collector="amd"} 1.0' in text
    listed = subprocess.run(
        [sys.executable, "-m", "trainwarden_exporter", "--once", "--no-collector.nvidia", *machine.flags()],
        env=machine.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert 'gpu_devices_visible{vendor="amd"} 8.0' in listed


def test_a_call_that_never_returns_costs_its_gpu_alone_and_is_named(
    machine: AmdMachine, collection: Collection
) -> None:
    wait_until(lambda: collection.page().count(b"gpu_power_watts{") == 8, "all answer")
    machine.fault("amdsmi_get_power_info", "hang", gpu=3)
    stuck = b'trainwarden_collector_stuck{collector="amd",device="0000:65:00.0",call="amdsmi_get_power_info"} 1.0'
    up = f'gpu_up{{gpu="3",uuid="{uuid(3)}"}} 0.0'.encode()
    wait_until(lambda: stuck in collection.page() and up in collection.page(), "it is said who hangs, and where")
    wait_until(lambda: collection.page().count(b"gpu_power_watts{") == 7, "the others go on")
    wait_until(lambda: b'gpu_node_devices_down{vendor="amd"} 1.0' in collection.page(), "it is down")


def test_a_library_that_never_opens_leaves_the_gpus_in_sight(machine: AmdMachine) -> None:
    machine.library("hangs")
    text = once(machine, "--collector.amd.timeout=2s")
    assert text.count("gpu_up{") == 8
    assert 'gpu_driver_error_info{vendor="amd",error="amdsmi_init_hangs"} 1.0' in text
    assert 'trainwarden_collector_stuck{collector="amd",device="",call="amdsmi_init"} 1.0' in text


def test_released_the_library_is_shut_down_and_the_child_is_gone(machine: AmdMachine, collection: Collection) -> None:
    wait_until(lambda: b"gpu_up{" in collection.page(), "it samples")
    assert collection.release() == []
    assert machine.asked()[-1] == "amdsmi_shut_down -"
    assert b"gpu_up{" not in collection.page()
    collection.resume()
    wait_until(lambda: collection.page().count(b"gpu_up{") == 8, "it takes them again")
