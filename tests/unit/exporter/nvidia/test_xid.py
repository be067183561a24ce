"""Errors of GPUs as the kernel's log words them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cases import cases
from tests.nodes.kmsg import KmsgFile
from trainwarden_exporter.collectors.gpu.nvml.xid import (
    LATE_SECONDS,
    NEW_CODE_SECONDS,
    Xid,
    XidCounter,
    XidKernelLog,
    add_xids,
    parse_xid,
)
from trainwarden_exporter.collectors.gpu.nvml.xid_codes import ACTION_CODES, ACTIONS
from trainwarden_exporter.collectors.kernel.log import KernelLine
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

BUS = "0000:3b:00.0"


@cases(
    ("text", "code"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79),
        ("NVRM: Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)", 13),
        ("NVRM: Xid (0000:3b:00): 31, Ch 00000008, engmask 00000101", 31),
        ("NVRM: Xid (PCI:0000:3B:00.0): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response", 119),
        ("NVRM: Xid (PCI:00000000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000001 0x0 0x0)", 145),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC1 i0 Link 09 (0x024590c6 0x0 0x0)", 149),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=python3, Ch 0000000e", 94),
    ],
)
def test_a_line_with_a_code_shows_which_gpu_and_which_error(text: str, code: int) -> None:
    assert parse_xid(text) == Xid(BUS, code)


@cases(
    "text",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:3b:00: GPU-1 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) has fallen off the bus and is not responding",
    ],
)
def test_a_gpu_that_fell_off_the_bus_needs_no_code(text: str) -> None:
    assert parse_xid(text) == Xid(BUS, 79, in_words=True)


@cases(
    "text",
    [
        "",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20",
        "NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d-d5ea-c752-ddf3-c697be6ba8be",
        "NVRM: Xid (PCI:zz): 79",
        "Xid (PCI:0000:3b:00): 79",
        "[ 12.3] NVRM: Xid (PCI:0000:3b:00): 48, pid=1",
        "oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/NVRM: Xid (PCI:0000:3b:00): 79, x,task=a,pid=1,uid=1",
        "Memory cgroup stats for /user.slice/NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.: anon 0",
        "usb 1-1: GPU 0000:3b:00.0 has fallen off the bus",
        "NVRM: Xid (PCI:0000:3b:00): 123456789012",
    ],
)
def test_another_line_is_no_error(text: str) -> None:
    assert parse_xid(text) is None


class Clock:
    """Seconds on CLOCK_MONOTONIC."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counter(clock: Clock) -> XidCounter:
    return XidCounter(clock)


def line(earliest: float, logged: float) -> KernelLine:
    return KernelLine(1, 3, "", logged, earliest)


def number(counter: XidCounter, code: int) -> int:
    return counter.counts()[BUS, code].number


@cases("interval", [5.0, 30.0, 120.0])
@cases("driver", [0.1, 45.0])
@cases("event_first", [True, False])
def test_an_error_counts_once_however_late_either_source_is(interval: float, driver: float, event_first: bool) -> None:
    """The log is read every `interval` seconds; the driver delivers its event after `driver` seconds."""
    clock = Clock()
    counter = XidCounter(clock)
    happened = 1000.0
    read = happened + interval - 1
    reports = [(happened + driver, "event"), (read, "line")]
    for clock.now, what in reports if event_first else reports[::-1]:
        if what == "event":
            counter.report_event(BUS, 79)
        else:
            counter.report_line(Xid(BUS, 79), line(read - interval, happened))
            counter.report_line(Xid(BUS, 79, in_words=True), line(read - interval, happened + 0.1))
    assert number(counter, 79) == 1


def test_errors_in_a_row_are_paired_one_by_one(counter: XidCounter, clock: Clock) -> None:
    for clock.now in (1000.0, 1000.5, 1001.0):
        counter.report_event(BUS, 31)
    for logged in (1000.0, 1000.5, 1001.0):
        counter.report_line(Xid(BUS, 31), line(999.0, logged))
    assert number(counter, 31) == 3


def test_an_error_after_another_ones_event_is_another(counter: XidCounter, clock: Clock) -> None:
    counter.report_event(BUS, 31)
    counter.report_line(Xid(BUS, 31), line(1030.0, 1031.0))  # the log was read to its end after the event
    counter.report_event(BUS, 43)
    counter.report_line(Xid("0000:3c:00.0", 31), line(999.0, 1000.0))
    clock.now = 1031.0 + LATE_SECONDS + 2
    counter.report_event(BUS, 31)
    assert {key: count.number for key, count in counter.counts().items()} == {
        (BUS, 31): 3,
        (BUS, 43): 1,
        ("0000:3c:00.0", 31): 1,
    }


def test_a_clock_that_is_set_back_hides_no_error(counter: XidCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    counter.report_event(BUS, 31)
    monkeypatch.setattr(time, "time", lambda: real() - 7200)
    counter.report_event(BUS, 31)
    count = counter.counts()[BUS, 31]
    assert count.number == 2
    assert count.last is not None
    assert count.last < real() - 3600


def test_a_code_that_no_gpu_has_from_the_start_begins_at_zero(counter: XidCounter, clock: Clock) -> None:
    """`increase` does not see the first error of a series that is born at 1."""
    assert 69 not in ACTION_CODES
    counter.report_event(BUS, 69)
    counter.report_event(BUS, 79)
    assert number(counter, 69) == 0
    assert counter.counts()[BUS, 69].last is not None
    assert number(counter, 79) == 1, "this one was 0 before"
    clock.now += NEW_CODE_SECONDS
    assert number(counter, 69) == 1


class Exporters(KmsgFile):
    """The log of one node, and what one exporter after another makes of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.state = StateFile(folder / "xids.json")

    def append_xid(self, code: int) -> None:
        self.append(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1")

    def start(self, boot_id: str = "boot-1") -> tuple[XidCounter, XidKernelLog]:
        counter = XidCounter()
        return counter, XidKernelLog(self.path, counter, self.state, boot_id)


@pytest.fixture
def node(tmp_path: Path) -> Exporters:
    return Exporters(tmp_path)


def sample(log: XidKernelLog) -> dict[str, float]:
    families = Families()
    log.add_to(families, "nvidia")
    return {family.name: family.samples[0].value for family in families.collected()}


def test_counts_outlive_the_process_that_counts(node: Exporters) -> None:
    node.append_xid(79)
    counter, log = node.start()
    since = sample(log)["gpu_xid_errors_since_timestamp_seconds"]
    assert number(counter, 79) == 0, "from before the first start"
    assert counter.counts()[BUS, 79].last is not None
    for _ in range(13):
        node.append_xid(79)
    sample(log)
    assert number(counter, 79) == 13
    node.append_xid(79)  # while nothing reads
    counter, log = node.start()
    assert sample(log)["gpu_xid_errors_since_timestamp_seconds"] == since
    assert number(counter, 79) == 14
    node.path.write_text("")
    node.sequence = 0
    node.append_xid(79)
    counter, log = node.start("boot-2")
    sample(log)
    assert number(counter, 79) == 15


def test_an_event_before_a_restart_and_its_line_after_it_are_one_error(node: Exporters) -> None:
    counter, log = node.start()
    sample(log)
    counter.report_event(BUS, 48)
    log.close()
    node.append_xid(48)
    counter, log = node.start()
    sample(log)
    assert number(counter, 48) == 1


def by_action(counter: XidCounter) -> dict[str, float]:
    families = Families()
    add_xids(families, counter, {BUS: {"gpu": "0", "uuid": "GPU-1"}})
    (family,) = [each for each in families.collected() if each.metric.name == "gpu_node_xid_errors_total"]
    return {row.labels[0]: row.value for row in family.rows}


def test_the_node_counts_errors_by_what_clears_them(counter: XidCounter, clock: Clock) -> None:
    assert by_action(counter) == dict.fromkeys(ACTIONS, 0), "increase() sees the first of each"
    for code in (79, 48, 48, 45, 9999):
        counter.report_event(BUS, code)
    counter.report_event("0000:99:00.0", 95)  # a GPU that is no longer there
    clock.now += NEW_CODE_SECONDS
    expected = {"reboot": 1, "reset_gpu": 3, "none": 1, "unknown": 1}
    assert by_action(counter) == dict.fromkeys(ACTIONS, 0) | expected


OTHER_BUS = "0000:5e:00.0"


def exported(counter: XidCounter, uuids: dict[str, str]) -> dict[str, float]:
    """The counts of XID 48 by uuid, given the uuid at each address; those that are 0 are left out."""
    families = Families()
    add_xids(families, counter, {bus: {"gpu": str(gpu), "uuid": uuid} for gpu, (bus, uuid) in enumerate(uuids.items())})
    found = {}
    for family in text_string_to_metric_families(encode_text(families.collected()).decode()):
        for each in family.samples:
            if each.name == "gpu_xid_errors_total" and each.labels["xid"] == "48" and each.value:
                found[each.labels["uuid"]] = each.value
    return found


def test_a_gpu_that_takes_the_slot_of_another_has_none_of_its_errors(node: Exporters) -> None:
    counter, log = node.start()
    sample(log)
    before = {BUS: "GPU-old", OTHER_BUS: "GPU-other"}
    assert not exported(counter, before)
    for _ in range(3):
        counter.report_event(BUS, 48)
    assert exported(counter, before) == {"GPU-old": 3}
    log.close()
    counter, log = node.start("boot-2")
    sample(log)
    assert exported(counter, before) == {"GPU-old": 3}, "until it was opened"
    assert not exported(counter, {**before, BUS: "GPU-new"})
    counter.report_event(BUS, 48)
    assert exported(counter, {**before, BUS: "GPU-new"}) == {"GPU-new": 1}
    assert sum(count.number for count in counter.counts().values()) == 4, "a sum over all never falls"
    log.close()
    counter, log = node.start("boot-3")
    assert exported(counter, before) == {"GPU-old": 3}, "it came back"


def test_the_errors_of_gpus_that_change_places_go_with_them(counter: XidCounter) -> None:
    assert not exported(counter, {BUS: "GPU-a", OTHER_BUS: "GPU-b"})
    counter.report_event(BUS, 48)
    assert exported(counter, {BUS: "GPU-a", OTHER_BUS: "GPU-b"}) == {"GPU-a": 1}
    assert not exported(counter, {BUS: "GPU-b", OTHER_BUS: ""}), "the other is not opened yet"
    assert exported(counter, {BUS: "GPU-b", OTHER_BUS: "GPU-a"}) == {"GPU-a": 1}
    assert exported(counter, {BUS: "GPU-a"}) == {"GPU-a": 1}, "it moved"


def test_errors_from_before_a_gpu_was_opened_are_its_own(counter: XidCounter) -> None:
    counter.report_event(BUS, 48)
    assert exported(counter, {BUS: ""}) == {"": 1}
    assert exported(counter, {BUS: "GPU-a"}) == {"GPU-a": 1}
    assert exported(counter, {}) == {"": 1}, "its address has no GPU"
