"""Errors of GPUs as the kernel's log words them."""

from __future__ import annotations

import pytest

from trainwarden_exporter.collectors.gpu.nvml.xid import SAME_SECONDS, Xid, XidCount, XidCounter, parse_xid

BUS = "0000:3b:00.0"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79),
        ("NVRM: Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)", 13),
        ("NVRM: Xid (0000:3b:00): 31, Ch 00000008, engmask 00000101", 31),
        ("NVRM: Xid (PCI:0000:3B:00.0): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response", 119),
        ("NVRM: Xid (PCI:00000000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000001 0x0 0x0)", 145),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC1 i0 Link 09 (0x024590c6 0x0 0x0)", 149),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=python3, Ch 0000000e", 94),
        ("[ 12.3] NVRM: Xid (PCI:0000:3b:00): 48, pid=1", 48),
    ],
)
def test_a_line_with_a_code_tells_which_gpu_and_which_error(text: str, code: int) -> None:
    assert parse_xid(text) == Xid(BUS, code)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:3b:00: GPU-1 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:2330) has fallen off the bus and is not responding",
    ],
)
def test_a_gpu_that_fell_off_the_bus_needs_no_code(text: str) -> None:
    assert parse_xid(text) == Xid(BUS, 79, in_words=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20",
        "NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d-d5ea-c752-ddf3-c697be6ba8be",
        "NVRM: Xid (PCI:zz): 79",
        "Xid (PCI:0000:3b:00): 79",
        "usb 1-1: GPU 0000:3b:00.0 has fallen off the bus",
        "NVRM: Xid (PCI:0000:3b:00): 123456789012",
    ],
)
def test_another_line_is_no_error(text: str) -> None:
    assert parse_xid(text) is None


def test_one_error_told_by_three_counts_once_and_keeps_its_time() -> None:
    counter = XidCounter()
    counter.report(BUS, 79, 100.0, "nvml")
    counter.report(BUS, 79, 99.0, "kernel", read_at=104.0)
    counter.report(BUS, 79, 99.0, "kernel, in words", read_at=104.0)
    assert counter.counts() == {(BUS, 79): XidCount(1, 100.0)}


def test_errors_in_a_row_are_paired_one_by_one() -> None:
    counter = XidCounter()
    for when in (100.0, 100.5, 101.0):
        counter.report(BUS, 31, when, "nvml")
    for when in (100.0, 100.5, 101.0):
        counter.report(BUS, 31, when, "kernel", read_at=103.0)
    assert counter.counts()[BUS, 31].number == 3


def test_the_same_error_of_another_gpu_another_code_or_much_later_is_another() -> None:
    counter = XidCounter()
    counter.report(BUS, 31, 100.0, "nvml")
    counter.report(BUS, 43, 100.0, "kernel")
    counter.report("0000:3c:00.0", 31, 100.0, "kernel")
    counter.report(BUS, 31, 100.0 + SAME_SECONDS + 1, "kernel")
    assert {key: count.number for key, count in counter.counts().items()} == {
        (BUS, 31): 2,
        (BUS, 43): 1,
        ("0000:3c:00.0", 31): 1,
    }
