"""AMD GPUs that are lost, hidden, asleep or split, and a library that does not work."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.devices.amd import PACKAGE, uuid
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.devices.amd import AmdMachine
    from tests.devices.amd_watched import Watch

GPU0, GPU1 = (f'gpu="{index}",uuid="{uuid(index)}"' for index in range(2))
UNKNOWN1 = 'gpu="1",uuid=""'


def of_gpu(page: dict[str, float], gpu: str) -> set[str]:
    return {name.partition("{")[0] for name in page if gpu in name}


def test_a_gpu_that_is_lost_stays_in_sight_and_comes_back(watch: Watch, machine: AmdMachine) -> None:
    watched = watch()
    assert watched.look()[f"gpu_up{{{GPU1}}}"] == 1
    machine.fault("*", 6, gpu=1)
    page = watched.look()
    assert page[f"gpu_up{{{GPU1}}}"] == 0
    assert page[f'gpu_error_info{{{GPU1},error="drm_error"}}'] == 1
    assert page['gpu_node_devices_down{vendor="amd"}'] == 1
    assert page['gpu_node_power_watts{vendor="amd",stat="sum"}'] == 640, "what it drew before is no news"
    assert of_gpu(page, GPU1) == {"gpu_up", "gpu_error_info", "gpu_info", "gpu_read_errors_total", "gpu_suspended"}
    assert page[f"gpu_up{{{GPU0}}}"] == 1
    assert watched.errors == [], "it is the GPU that failed, not the collector"
    machine.heal()
    page = watched.look()
    assert page[f"gpu_up{{{GPU1}}}"] == 1
    assert page[f"gpu_power_watts{{{GPU1}}}"] == 641
    assert not [name for name in page if name.startswith("gpu_error_info")]


def test_what_is_slow_to_read_is_kept_until_it_is_old_and_dropped_once_its_gpu_is_down(
    watch: Watch, machine: AmdMachine
) -> None:
    watched = watch(slow_interval=3600.0)
    watched.look()
    slow = next(
        task for task in watched.collector.tasks() if (task.device, task.tier) == (machine.addresses[1], "slow")
    )
    assert slow.interval == 5.0, "at the pace of the fast tier, so that it ends with it"
    kept = slow.read()
    assert kept
    assert slow.read() is kept
    machine.fault("*", 6, gpu=1)
    watched.look()
    assert slow.read() == []


def test_a_gpu_that_the_bus_shows_and_the_driver_does_not_is_down(watch: Watch, machine: AmdMachine) -> None:
    machine.hide(1)
    page = watch().look()
    assert page[f"gpu_up{{{UNKNOWN1}}}"] == 0
    assert page['gpu_devices_expected{vendor="amd"}'] == 2
    assert page['gpu_devices_visible{vendor="amd"}'] == 1
    page = watch(by_bus=False).look()
    assert page['gpu_devices_expected{vendor="amd"}'] == 1, "in a container that was given one of them"
    assert f"gpu_up{{{UNKNOWN1}}}" not in page


def test_a_gpu_that_does_not_state_where_it_is_costs_the_others_nothing(watch: Watch, machine: AmdMachine) -> None:
    machine.fault("amdsmi_get_gpu_device_bdf", 14, gpu=1)
    page = watch().look()
    assert (page[f"gpu_up{{{GPU0}}}"], page[f"gpu_up{{{UNKNOWN1}}}"]) == (1, 0)


def test_how_many_there_should_be_may_be_stated(watch: Watch) -> None:
    assert watch(expected=8).look()['gpu_devices_expected{vendor="amd"}'] == 8


def test_a_gpu_that_sleeps_is_neither_asked_nor_down(watch: Watch, machine: AmdMachine) -> None:
    watched = watch()
    machine.power(machine.addresses[1], "suspended")
    page = watched.look()
    assert page[f"gpu_suspended{{{UNKNOWN1}}}"] == 1
    assert page['gpu_node_devices_down{vendor="amd"}'] == 0
    assert f"gpu_up{{{UNKNOWN1}}}" not in page
    assert [asked for asked in machine.asked() if asked.endswith(" 1") and "bdf" not in asked] == []
    machine.power(machine.addresses[1], "active")
    assert watched.look()[f"gpu_up{{{GPU1}}}"] == 1


def test_where_all_sleep_the_library_is_not_opened_for_that_would_wake_them(watch: Watch, machine: AmdMachine) -> None:
    for bus in machine.addresses:
        machine.power(bus, "suspended")
    watched = watch()
    page = watched.look()
    assert machine.asked() == []
    assert watched.errors == []
    assert 'gpu_devices_visible{vendor="amd"}' not in page
    assert not [name for name in page if name.startswith(("gpu_driver_error", "gpu_up"))]


def test_partitions_of_a_gpu_are_gpus(watch: Watch, machine: AmdMachine) -> None:
    machine.partition(0, 4)
    page = watch().look()
    assert page['gpu_devices_visible{vendor="amd"}'] == 5
    buses = {f'pci_bus_id="0000:05:00.{function}"' for function in range(4)} | {'pci_bus_id="0000:25:00.0"'}
    assert all(any(bus in name for name in page) for bus in buses)
    ups = [value for name, value in page.items() if name.startswith("gpu_up")]
    assert ups == [1] * 5


@pytest.mark.parametrize(("code", "word"), [(34, "driver_not_loaded"), (18, "init_error"), (77, "code_77")])
def test_a_library_that_does_not_start_leaves_every_gpu_down_and_gives_the_reason(
    watch: Watch, machine: AmdMachine, code: int, word: str
) -> None:
    machine.library(code)
    watched = watch()
    page = watched.look()
    assert watched.errors == [word]
    assert page[f'gpu_driver_error_info{{vendor="amd",error="{word}"}}'] == 1
    assert page['gpu_node_devices_down{vendor="amd"}'] == 2
    assert page['gpu_devices_visible{vendor="amd"}'] == 0
    machine.library("ok")
    page = watched.look()
    assert page['gpu_node_devices_down{vendor="amd"}'] == 0
    assert not [name for name in page if name.startswith("gpu_driver_error")]


@pytest.mark.parametrize("installed", [True, False])
def test_without_its_tools_nothing_is_known_of_a_gpu(
    watch: Watch,
    machine: AmdMachine,
    installed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.library("absent")
    if not installed:
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(PACKAGE)])
    watched = watch()
    page = watched.look()
    word = "library_not_loaded" if installed else "amdsmi_not_installed"
    assert watched.errors == [word]
    assert page[f'gpu_driver_error_info{{vendor="amd",error="{word}"}}'] == 1
    assert not [name for name in page if name.startswith(("gpu_up", "gpu_node_devices"))]
    assert page['gpu_devices_visible{vendor="amd"}'] == 0, "none can be asked, and a query for missing ones says so"
    assert capsys.readouterr().out == "", "the output of this process is for messages"


def test_a_gpu_that_comes_to_the_bus_is_found(watch: Watch, machine: AmdMachine) -> None:
    watched = watch()
    watched.look()
    machine.add("0000:45:00.0")
    watched.look()
    page = watched.look()
    assert page[f'gpu_up{{gpu="2",uuid="{uuid(2)}"}}'] == 1
    assert page['gpu_devices_expected{vendor="amd"}'] == 3


@pytest.mark.parametrize("code", [32, 6])
def test_a_driver_that_was_loaded_anew_is_asked_anew(watch: Watch, machine: AmdMachine, code: int) -> None:
    watched = watch()
    watched.look()
    machine.fault("*", code)
    assert watched.look()[f"gpu_up{{{GPU0}}}"] == 0
    machine.heal()
    watched.look()
    assert watched.look()[f"gpu_up{{{GPU0}}}"] == 1
    assert machine.asked().count("amdsmi_init -") >= 2
    assert "amdsmi_shut_down -" in machine.asked()


def test_released_it_holds_nothing_and_takes_it_again(watch: Watch, machine: AmdMachine) -> None:
    watched = watch()
    watched.look()
    watched.collector.close()
    assert machine.asked()[-1] == "amdsmi_shut_down -"
    assert watched.look()[f"gpu_up{{{GPU0}}}"] == 1


def test_a_library_that_opens_slowly_is_not_reported_to_hang(
    watch: Watch, machine: AmdMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.gpu.collector.OPEN_SECONDS", 0.0)
    machine.library("hangs")
    watched = watch(timeout=60.0)
    pages: list[str] = []
    watched.collector.collect()
    tiers = {task.tier for task in watched.collector.tasks()}
    assert tiers == {"driver", "node"}, "a process whose library hangs is replaced; GPUs that wait would hide it"
    node = threading.Thread(target=lambda: pages.append(watched.node()), daemon=True)
    node.start()
    wait_until(lambda: machine.asked() == ["amdsmi_init -"], "the library begins to open")
    machine.library("ok")
    wait_until(lambda: len(watched.collector.tasks()) > 2 or watched.collector.collect(), "the GPUs can be sampled")
    page = watched.look()
    assert (page[f"gpu_up{{{GPU0}}}"], page[f"gpu_up{{{GPU1}}}"]) == (1, 1)
    node.join(30)
    assert "gpu_driver_error_info" not in pages[0]
    assert f"gpu_up{{{GPU0}}} 1.0" in pages[0]


def test_what_hangs_in_a_call_is_not_shut_down_under(watch: Watch, machine: AmdMachine) -> None:
    watched = watch()
    watched.look()
    machine.fault("amdsmi_get_power_info", "wait", gpu=1)
    part = next(
        part for part in watched.collector.tasks() if (part.device, part.tier) == (machine.addresses[1], "fast")
    )
    thread = threading.Thread(target=part.read)
    before = len(machine.asked())
    thread.start()
    wait_until(lambda: not thread.is_alive() or "amdsmi_get_power_info 1" in machine.asked()[before:])
    watched.collector.close()
    assert "amdsmi_shut_down -" not in machine.asked()
    thread.join()
