"""Errors that the driver tells of: by NVML, by the kernel's log, by both."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.nvidia.conftest import Exporter, once
from tests.waiting import wait_until

Serve = Callable[..., Exporter]


def line(node: FakeNvml, gpu: int, code: int) -> str:
    return f"NVRM: Xid (PCI:{node.bus(gpu)[:-2]}): {code}, pid='<unknown>', name=<unknown>, something happened"


def count(exporter: Exporter, gpu: int, code: int) -> float | None:
    return exporter.page().get(f"gpu_xid_errors_total{{gpu={gpu},xid={code}}}")


def test_an_error_that_both_report_is_counted_once(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(2).kernel_says("Linux"))
    wait_until(lambda: count(exporter, 1, 79) == 0)
    node.xid(1, 79).kernel_says(line(node, 1, 79), f"NVRM: GPU {node.bus(1)}: GPU has fallen off the bus.")
    wait_until(lambda: count(exporter, 1, 79) == 1)
    node.xid(1, 48)  # by then the first has been read by both
    wait_until(lambda: count(exporter, 1, 48) == 1)
    assert count(exporter, 1, 79) == 1
    assert count(exporter, 0, 79) == 0
    assert exporter.page()["gpu_xid_last_timestamp_seconds{gpu=1,xid=48}"] > 1e9


def test_an_error_that_the_kernel_alone_reports_is_counted(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).kernel_says("Linux"))
    wait_until(lambda: count(exporter, 0, 62) == 0)
    wait_until(lambda: exporter.page().get("gpu_kernel_log_readable{vendor=nvidia}") == 1)
    node.kernel_says(line(node, 0, 62), line(node, 0, 69))
    wait_until(lambda: count(exporter, 0, 62) == 1)
    assert count(exporter, 0, 69) == 0, "a code that is new is 0 at first"
    assert exporter.page()["gpu_xid_last_timestamp_seconds{gpu=0,xid=69}"] > 0


def test_an_error_that_nvml_alone_reports_is_counted_each_time(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1))
    wait_until(lambda: count(exporter, 0, 13) == 0)
    wait_until(lambda: exporter.page().get("gpu_kernel_log_readable{vendor=nvidia}") == 0)
    for times in (1, 2):
        node.xid(0, 13)
        wait_until(lambda expected=times: count(exporter, 0, 13) == expected)  # type: ignore[misc]  # the loop's own value


def test_counts_go_on_over_a_release_and_a_restart(node: FakeNvml, serve: Serve, tmp_path: Path) -> None:
    boot_id = node.procfs / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("11111111-2222-3333-4444-555555555555\n")
    state = f"--path.state={tmp_path / 'state'}"
    node.gpus(1).kernel_says(line(node, 0, 94), line(node, 7, 79))
    exporter = serve(node, state)
    wait_until(lambda: count(exporter, 0, 94) == 0)
    assert exporter.page()["gpu_xid_last_timestamp_seconds{gpu=0,xid=94}"] > 0, "the time of what was before"
    node.xid(0, 94).kernel_says(line(node, 0, 94), line(node, 0, 94), line(node, 7, 79))
    wait_until(lambda: count(exporter, 0, 94) == 2)
    (child,) = exporter.children()
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: child not in exporter.children())
    node.kernel_says(line(node, 0, 94))
    exporter.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: count(exporter, 0, 94) == 3)
    exporter.end()
    node.kernel_says(line(node, 0, 94))
    page = once(node, state)
    assert page["gpu_xid_errors_total{gpu=0,xid=94}"] == 4
    assert page["gpu_xid_errors_total{gpu=,xid=79}"] == 1, "of a GPU that is not there any more"


def test_the_meaning_of_an_error_is_there_once_it_came(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).kernel_says("Linux"))
    wait_until(lambda: count(exporter, 0, 149) == 0)
    assert not [key for key in exporter.page() if key.startswith("gpu_xid_info")]
    node.kernel_says(line(node, 0, 149), line(node, 0, 154), line(node, 0, 999))
    wait_until(lambda: count(exporter, 0, 149) == count(exporter, 0, 154) == 1)
    found = {key.partition("action=")[2] for key in exporter.page() if key.startswith("gpu_xid_info")}
    assert found == {"check_nvlink}", "recovery_action}"}


def test_where_events_fail_the_kernel_reports_errors_and_the_log_has_one_line(node: FakeNvml, serve: Serve) -> None:
    exporter = serve(node.gpus(1).kernel_says("Linux").set(note_calls=1).returns(None, "nvmlEventSetWait_v2", 15))
    wait_until(lambda: [what for _, what in node.calls()].count("nvmlEventSetWait_v2") > 1)
    node.kernel_says(line(node, 0, 79))
    wait_until(lambda: count(exporter, 0, 79) == 1)
    _, errors = exporter.end()
    assert len(re.findall("NVML does not report errors now: gpu_is_lost", errors)) == 1
