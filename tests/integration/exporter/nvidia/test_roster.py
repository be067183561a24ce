"""Each GPU keeps its label, and a GPU that left stays in sight, whatever ends in the meantime."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter
from tests.waiting import wait_until
from trainwarden.identity import host_name

pytestmark = [pytest.mark.process, pytest.mark.slow]

Serve = Callable[..., Exporter]
OTHER_VERSION = b'{"version": 0, "machine": "/", "gpus": []}'
NO_GPUS = b'{"version": 1, "machine": "/", "gpus": [{"index": 0, "bus": "../etc"}]}'
POWER = (100.0, 200.0, 300.0, 400.0)


def series(exporter: Exporter, name: str) -> dict[tuple[str, str], float]:
    """The values of a metric by `gpu` and `uuid`."""
    found = {}
    for family in text_string_to_metric_families(exporter.text()):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels["gpu"], sample.labels["uuid"]] = sample.value
    return found


def jobs(exporter: Exporter) -> dict[str, tuple[str, str]]:
    """The GPU of each job."""
    return {
        sample.labels["job_id"]: (sample.labels["gpu"], sample.labels["uuid"])
        for family in text_string_to_metric_families(exporter.text())
        for sample in family.samples
        if sample.name == "slurm_gpu_job_info"
    }


def own(gpu: int) -> tuple[str, str]:
    return str(gpu), FakeNvml.uuid(gpu)


@pytest.fixture
def shared(node: FakeNvml, tmp_path: Path) -> list[str]:
    """Four GPUs, of which alice has the third and bob the last; the flags that show their jobs."""
    node.gpus(4)
    for gpu, watts in enumerate(POWER):
        node.set(gpu, power=int(watts * 1000))
    files = tmp_path / "jobs"
    files.mkdir()
    (files / node.uuid(2)).write_text("1001 user=alice\n")
    (files / "3").write_text("1002 user=bob\n")
    return ["--collector.gpu-jobs", "--collector.gpu-jobs.interval=200ms", f"--collector.gpu-jobs.path={files}"]


def released(exporter: Exporter) -> None:
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: exporter.page()["trainwarden_exporter_released{}"] == 1 and not exporter.children())


def taken(exporter: Exporter) -> None:
    exporter.process.send_signal(signal.SIGUSR1)


def all_up(exporter: Exporter) -> None:
    wait_until(lambda: series(exporter, "gpu_up") == {own(gpu): 1 for gpu in range(4)})
    wait_until(lambda: jobs(exporter) == {"1001": own(2), "1002": own(3)})


def second_is_away(exporter: Exporter) -> None:
    """Wait until the second GPU alone is down, and all is joined rightly."""
    wait_until(lambda: series(exporter, "gpu_up") == {own(gpu): gpu != 1 for gpu in range(4)})
    wait_until(
        lambda: (
            series(exporter, "gpu_power_watts") == {own(gpu): POWER[gpu] for gpu in (0, 2, 3)}
            and jobs(exporter) == {"1001": own(2), "1002": own(3)}
        )
    )
    page = exporter.page()
    assert page["gpu_devices_expected{vendor=nvidia}"] == 4
    assert page["gpu_devices_visible{vendor=nvidia}"] == 3
    assert page["gpu_node_devices_down{vendor=nvidia}"] == 1
    assert [name for name in page if name.startswith("gpu_info{gpu=1,") and "serial=1650923012345" in name]


def test_after_the_reset_procedure_every_gpu_has_the_label_that_it_had(
    node: FakeNvml, serve: Serve, shared: list[str]
) -> None:
    exporter = serve(node, *shared)
    all_up(exporter)
    released(exporter)
    node.unplug(1)
    taken(exporter)
    second_is_away(exporter)
    released(exporter)
    taken(exporter)
    second_is_away(exporter)


@pytest.mark.nightly
def test_a_crash_of_the_child_a_reload_and_a_restart_change_no_label(
    node: FakeNvml, serve: Serve, shared: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text("log:\n  level: info\n")
    exporter = serve(node, *shared, f"--config.file={file}")
    all_up(exporter)
    node.unplug(1)
    second_is_away(exporter)
    (child,) = exporter.children()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: exporter.children() not in ([], [child]))
    second_is_away(exporter)
    reloaded = "trainwarden_config_last_reload_success_timestamp_seconds{file=config}"
    before = exporter.page()[reloaded]
    exporter.process.send_signal(signal.SIGHUP)
    wait_until(lambda: exporter.page()[reloaded] > before)
    second_is_away(exporter)
    assert exporter.end()[0] == 0
    exporter = serve(node, *shared)
    second_is_away(exporter)
    node.plug_in(1)
    all_up(exporter)


def test_a_node_that_starts_without_any_gpu_still_expects_all(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2))
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, own(1): 1})
    exporter.end()
    node.unplug(0).unplug(1)
    exporter = serve(node)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 0, own(1): 0})
    assert exporter.page()["gpu_devices_expected{vendor=nvidia}"] == 2


def test_a_gpu_that_was_exchanged_has_the_label_of_its_slot_and_its_own_uuid(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(3))
    wait_until(lambda: len(series(exporter, "gpu_up")) == 3)
    released(exporter)
    node.unplug(1)
    node.plug_in(1, uuid="GPU-new", serial="77")
    taken(exporter)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, ("1", "GPU-new"): 1, own(2): 1})
    page = exporter.page()
    assert page["gpu_devices_expected{vendor=nvidia}"] == 3
    assert [name for name in page if name.startswith("gpu_info{gpu=1,") and "serial=77" in name]


@pytest.mark.nightly
def test_where_the_bus_is_numbered_otherwise_after_a_loss_each_gpu_keeps_its_label(
    node: FakeNvml, serve: Serve
) -> None:
    exporter = serve(node.gpus(3))
    wait_until(lambda: series(exporter, "gpu_up") == {own(gpu): 1 for gpu in range(3)})
    exporter.end()
    node.unplug(2)
    node.set(1, uuid=node.uuid(2))  # the second is gone, and the third has its address
    exporter = serve(node)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, own(1): 0, own(2): 1})


@pytest.mark.nightly
def test_after_the_driver_was_loaded_anew_labels_are_those_of_slots_and_uuids_those_of_cards(
    node: FakeNvml, serve: Serve
) -> None:
    exporter = serve(node.gpus(4))
    wait_until(lambda: series(exporter, "gpu_up") == {own(gpu): 1 for gpu in range(4)})
    (child,) = exporter.children()
    # Two cards changed places, and one is another.
    exchanged = {("0", node.uuid(3)): 1, ("1", "GPU-new"): 1, own(2): 1, ("3", node.uuid(0)): 1}
    node.set(0, uuid=node.uuid(3)).set(1, uuid="GPU-new", serial="77").set(3, uuid=node.uuid(0))
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: exporter.children() not in ([], [child]))
    wait_until(lambda: series(exporter, "gpu_up") == exchanged)
    wait_until(lambda: series(exporter, "gpu_power_watts").keys() == exchanged.keys())
    assert exporter.page()["gpu_devices_expected{vendor=nvidia}"] == 4
    wait_until(
        lambda: {gpu["uuid"] for gpu in json.loads(stored(node).read_text())["gpus"]} == {u for _, u in exchanged}
    )
    exporter.end()
    exporter = serve(node)
    wait_until(lambda: series(exporter, "gpu_up") == exchanged)


@pytest.mark.nightly
def test_a_gpu_that_another_driver_was_given_is_not_missing(node: FakeNvml, serve: Serve, tmp_path: Path) -> None:
    exporter = serve(node.gpus(2))
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, own(1): 1})
    driver = node.sysfs / "bus/pci/devices" / node.bus(1) / "driver"
    driver.symlink_to(tmp_path / "drivers/vfio-pci")
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1})
    wait_until(lambda: exporter.page()["gpu_devices_expected{vendor=nvidia}"] == 1)
    driver.unlink()
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, own(1): 1})


@pytest.mark.parametrize("content", [b"\xff{", b"[]", OTHER_VERSION, NO_GPUS])
def test_a_file_that_cannot_be_used_is_kept_aside_and_named(node: FakeNvml, serve: Serve, content: bytes) -> None:
    file = stored(node.gpus(1))
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    exporter = serve(node)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1})
    wait_until(lambda: json.loads(file.read_text())["gpus"][0]["uuid"] == node.uuid(0))
    _, errors = exporter.end()
    assert f"{file} is not used" in errors
    assert next(file.parent.glob("gpus-nvidia.json.damaged-*")).read_bytes() == content


@pytest.mark.nightly
def test_the_gpus_of_another_machine_are_not_expected(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2).instance_type("g6.12xlarge"))
    wait_until(lambda: len(series(exporter, "gpu_up")) == 2)
    exporter.end()
    node.unplug(1).instance_type("g6.xlarge")
    exporter = serve(node)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1})
    assert exporter.page()["gpu_devices_expected{vendor=nvidia}"] == 1


@pytest.mark.nightly
def test_gpus_whose_file_was_removed_are_forgotten_with_the_next_release(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2))
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 1, own(1): 1})
    wait_until(lambda: stored(node).exists())
    node.unplug(0)
    wait_until(lambda: series(exporter, "gpu_up") == {own(0): 0, own(1): 1})
    released(exporter)
    stored(node).unlink()
    taken(exporter)
    wait_until(lambda: series(exporter, "gpu_up") == {("0", node.uuid(1)): 1})
    wait_until(lambda: [gpu["uuid"] for gpu in json.loads(stored(node).read_text())["gpus"]] == [node.uuid(1)])


def stored(node: FakeNvml) -> Path:
    """The file in which the exporter keeps the GPUs."""
    return node.folder / f"state/node-{host_name()}/gpus-nvidia.json"
