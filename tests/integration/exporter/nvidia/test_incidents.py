"""GPUs that fail while they are watched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter, Page, once
from tests.integration.exporter.running import is_alive
from tests.waiting import wait_until

Serve = Callable[..., Exporter]
HANGING = "trainwarden_collector_stuck{collector=nvidia,device=%s,call=%s}"


def up(page: Page) -> list[float]:
    return [value for key, value in sorted(page.items()) if key.startswith("gpu_up{")]


@pytest.mark.parametrize(("code", "error"), [(15, "gpu_is_lost"), (16, "reset_required")])
def test_a_gpu_that_is_lost_stays_in_sight_and_the_others_go_on(
    node: FakeNvml, serve: Serve, code: int, error: str
) -> None:
    exporter = serve(node.gpus(3))
    wait_until(lambda: up(exporter.page()) == [1, 1, 1])
    node.returns(1, "nvmlDeviceGetMemoryInfo_v2", code)
    node.returns(1, "nvmlDeviceGetHandleByPciBusId_v2", code)
    wait_until(lambda: up(exporter.page()) == [1, 0, 1])
    wait_until(lambda: exporter.page().get("gpu_node_devices_down{vendor=nvidia}") == 1)
    page = exporter.page()
    assert page[f"gpu_error_info{{gpu=1,error={error}}}"] == 1
    assert "gpu_power_watts{gpu=1}" not in page
    assert page["gpu_power_watts{gpu=2}"] == 512.345
    node.returns(1, "nvmlDeviceGetMemoryInfo_v2", None)
    node.returns(1, "nvmlDeviceGetHandleByPciBusId_v2", None)
    wait_until(lambda: up(exporter.page()) == [1, 1, 1])


def test_a_gpu_that_vanished_from_the_bus_is_remembered_with_its_uuid(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2), "--collector.nvidia.slow-interval=1h")
    wait_until(lambda: "gpu_pcie_link_width{gpu=1}" in exporter.page())
    node.lose(1).on_bus(1, there=False)
    wait_until(lambda: "gpu_pcie_link_width{gpu=1}" not in exporter.page())
    wait_until(lambda: up(exporter.page()) == [1, 0])
    page = exporter.page()
    assert "gpu_info{gpu=1,vendor=nvidia,model=NVIDIA H100 80GB HBM3" in "".join(page)
    assert page["gpu_devices_expected{vendor=nvidia}"] == 2


def test_a_call_that_never_returns_is_named_and_the_exporter_still_ends(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2))
    wait_until(lambda: up(exporter.page()) == [1, 1])
    node.hang(0, "nvmlDeviceGetPowerUsage")
    stuck = HANGING % (node.bus(0), "nvmlDeviceGetPowerUsage")
    wait_until(lambda: exporter.page().get(stuck) == 1 and up(exporter.page()) == [0, 1])
    page = exporter.page()
    assert page["gpu_error_info{gpu=0,error=no_answer}"] == 1
    assert page["gpu_power_watts{gpu=1}"] == 512.345
    assert "gpu_power_watts{gpu=0}" not in page
    assert page["trainwarden_collector_success{collector=nvidia}"] == 0
    children = exporter.children()
    status, errors = exporter.end()
    assert status == 0
    assert "Traceback" not in errors
    wait_until(lambda: not any(map(is_alive, children)))


@pytest.mark.parametrize("call", ["nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlEventSetCreate"])
def test_gpus_whose_library_never_opens_are_down_and_come_up_once_it_does(
    node: FakeNvml, serve: Serve, call: str
) -> None:
    exporter = serve(node.gpus(2).hang(None, call))
    wait_until(lambda: exporter.page().get(HANGING % ("", call)) == 1 and up(exporter.page()) == [0, 0])
    page = exporter.page()
    assert page[f"gpu_error_info{{gpu=1,error={call}_hangs}}"] == 1
    assert page[f"gpu_driver_error_info{{vendor=nvidia,error={call}_hangs}}"] == 1
    assert page["gpu_devices_expected{vendor=nvidia}"] == page["gpu_node_devices_down{vendor=nvidia}"] == 2
    assert page["gpu_devices_visible{vendor=nvidia}"] == 0
    assert page["trainwarden_collector_success{collector=nvidia}"] == 0
    node.set(**{f"hang.{call}": None})
    wait_until(lambda: up(exporter.page()) == [1, 1])
    wait_until(lambda: exporter.page().get("trainwarden_collector_success{collector=nvidia}") == 1)
    page = exporter.page()
    assert page["gpu_devices_visible{vendor=nvidia}"] == 2
    assert not [key for key in page if key.startswith(("gpu_driver_error", "trainwarden_collector_stuck"))]
    assert len({process for process, _ in node.calls()}) == 1


@pytest.mark.nightly
def test_a_library_that_does_not_state_which_gpus_there_are_is_named(node: FakeNvml, serve: Serve) -> None:
    call = "nvmlDeviceGetHandleByIndex_v2"
    exporter = serve(node.gpus(2).hang(1, call), "--no-collector.nvidia.pci-bus", "--expect.gpus=2")
    wait_until(lambda: exporter.page().get(HANGING % ("", call)) == 1)
    wait_until(lambda: f"gpu_driver_error_info{{vendor=nvidia,error={call}_hangs}}" in exporter.page())
    page = exporter.page()
    assert page["gpu_devices_expected{vendor=nvidia}"] - page["gpu_devices_visible{vendor=nvidia}"] == 2
    node.set(1, **{f"hang.{call}": None})
    wait_until(lambda: up(exporter.page()) == [1, 1])


def test_one_look_waits_for_a_library_that_is_slow_to_open_where_it_alone_lists_the_gpus(node: FakeNvml) -> None:
    node.gpus(2).slow(None, "nvmlInit_v2", 3200)
    assert up(once(node, "--no-collector.nvidia.pci-bus", "--collector.nvidia.timeout=6s")) == [1, 1]


@pytest.mark.nightly
def test_a_library_that_hangs_as_it_is_opened_anew_is_named(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: up(exporter.page()) == [1])
    node.hang(None, "nvmlShutdown").returns(0, "nvmlDeviceGetUtilizationRates", 1)
    wait_until(lambda: exporter.page().get(HANGING % ("", "nvmlShutdown")) == 1)
    wait_until(lambda: "gpu_error_info{gpu=0,error=nvmlShutdown_hangs}" in exporter.page())
    node.returns(0, "nvmlDeviceGetUtilizationRates", None).set(**{"hang.nvmlShutdown": None})
    wait_until(lambda: up(exporter.page()) == [1])


@pytest.mark.nightly
def test_a_driver_that_hangs_from_the_start_does_not_hold_up_the_end(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).hang(None, "nvmlInit_v2"))
    wait_until(lambda: up(exporter.page()) == [0])
    children = exporter.children()
    assert exporter.end()[0] == 0
    assert children
    wait_until(lambda: not any(map(is_alive, children)))


@pytest.mark.nightly
def test_a_shutdown_that_hangs_does_not_hold_up_the_end(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: up(exporter.page()) == [1])
    children = exporter.children()
    node.hang(None, "nvmlShutdown")
    assert exporter.end()[0] == 0
    assert children
    wait_until(lambda: not any(map(is_alive, children)))


def test_a_call_that_is_slow_within_the_deadline_is_waited_for(node: FakeNvml) -> None:
    page = once(node.gpus(2).slow(0, "nvmlDeviceGetUtilizationRates", 800))
    assert up(page) == [1, 1]
    assert page["gpu_utilization_ratio{gpu=0}"] == 0.98
    assert page["trainwarden_driver_seconds_total{collector=nvidia,tier=fast}"] > 0.8


def test_one_call_that_fails_now_and_then_costs_its_own_series_alone(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).returns(0, "nvmlDeviceGetPowerUsage", 999))
    wait_until(lambda: exporter.page().get("gpu_read_errors_total{gpu=0,error=unknown}", 0) >= 2)
    page = exporter.page()
    assert "gpu_power_watts{gpu=0}" not in page
    assert page["gpu_up{gpu=0}"] == page["gpu_utilization_ratio{gpu=0}"] / 0.98 == 1
    node.returns(0, "nvmlDeviceGetPowerUsage", None)
    wait_until(lambda: "gpu_power_watts{gpu=0}" in exporter.page())
    assert exporter.end()[1].count("nvmlDeviceGetPowerUsage fails: unknown") == 1


def test_what_a_gpu_does_not_support_is_asked_once(node: FakeNvml, serve: Serve) -> None:
    node.gpus(1).set(power_limit=None, note_calls=1)
    exporter = serve(node)
    wait_until(lambda: [what for _, what in node.calls()].count("nvmlDeviceGetPowerUsage") > 3)
    assert [what for _, what in node.calls()].count("nvmlDeviceGetEnforcedPowerLimit") == 1
    assert "gpu_read_errors_total" not in "".join(exporter.page())


def test_a_link_that_falls_silent_makes_no_counter_smaller(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).set(0, **{"field.161.3": 100}))
    replays = "gpu_nvlink_errors_total{gpu=0,error=replay}"
    wait_until(lambda: exporter.page().get(replays) == 117)
    node.set(0, **{"field_return.161": 999, "link.3": 0})
    wait_until(lambda: exporter.page().get("gpu_nvlink_up{gpu=0,link=3}") == 0)
    assert exporter.page()[replays] == 117


def test_a_driver_that_was_loaded_again_is_found_again(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: up(exporter.page()) == [1])
    node.returns(0, "nvmlDeviceGetUtilizationRates", 1)
    wait_until(lambda: "init" in [what for _, what in node.calls()][2:])
    node.returns(0, "nvmlDeviceGetUtilizationRates", None)
    wait_until(lambda: up(exporter.page()) == [1])
    assert len({process for process, _ in node.calls()}) == 1


@pytest.mark.nightly
def test_what_waits_for_a_gpu_that_hangs_is_not_called_stuck_itself(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).hang(0, "nvmlDeviceGetHandleByPciBusId_v2"))
    seen: set[str] = set()
    stuck = HANGING % (node.bus(0), "nvmlDeviceGetHandleByPciBusId_v2")

    def said() -> bool:
        seen.update(name for name in exporter.page() if name.startswith("trainwarden_collector_stuck"))
        return stuck in seen

    wait_until(said)
    assert seen == {stuck}
