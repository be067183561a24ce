"""How far the clock is off, and who says so."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import pytest

from tests.cases import cases
from trainwarden_exporter.collectors.clock import (
    ClockCollector,
    KernelClock,
    Timex,
    chrony_offset,
    clock_of,
    kernel_clock,
    parse_tracking,
)
from trainwarden_exporter.core.exposition import encode_text

if TYPE_CHECKING:
    from pathlib import Path

# As chronyc 4.3 answered once where its server was seven seconds ahead of this clock.
BEHIND = (
    "7F000001,127.0.0.1,3,1795272257.058061666,7.000021935,0.000004825,0.000038973,0.618,0.116,9.795,"
    "0.000173491,0.000025454,1.0,Normal\n"
)
NANO, UNSYNC = 0x2000, 0x0040


def page(collector: ClockCollector) -> dict[str, float]:
    lines = encode_text(collector.collect()).decode().splitlines()
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines if not each.startswith("#"))}


def test_the_kernels_offset_is_exported_as_seconds_ahead() -> None:
    assert clock_of(0, 0, 250_000, 1_500) == KernelClock(True, -0.25, 0.0015)
    assert clock_of(0, NANO, -250_000, 1_500) == KernelClock(True, 0.00025, 0.0015)


@cases(("state", "status"), [(5, 0), (0, UNSYNC), (5, UNSYNC | NANO)])
def test_of_an_unsynchronized_clock_no_offset_and_no_bound_is_exported(state: int, status: int) -> None:
    assert clock_of(state, status, 0, 16_000_000) == KernelClock(False, None, None)


def test_this_kernel_answers_without_privileges() -> None:
    # Fails where the structure does not fit: the kernel fills in the time as well.
    timex = Timex(modes=0)
    assert ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) >= 0
    assert timex.tv_sec == pytest.approx(time.time(), abs=5)
    assert 9_000 <= timex.tick <= 11_000
    assert kernel_clock().synchronized in (True, False)


def test_chronys_offset_is_exported_as_seconds_ahead() -> None:
    assert parse_tracking(BEHIND) == pytest.approx(-7.000021935)
    assert parse_tracking(BEHIND.replace("7.000021935", "-0.5")) == 0.5


@cases(
    "answer",
    ["", "506 Cannot talk to daemon\n", BEHIND.replace("Normal", "Not synchronised"), BEHIND.replace("7.000", "x")],
)
def test_an_answer_without_an_offset_is_none(answer: str) -> None:
    assert parse_tracking(answer) is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "seconds", "expected"),
    [
        (f"echo '{BEHIND.strip()}'", 60.0, -7.000021935),
        (f"echo '{BEHIND.strip()}'; exit 1", 60.0, None),
        ("exec sleep 600", 0.3, None),
    ],
)
def test_chronyc_is_asked_where_it_is_there_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float, expected: float | None
) -> None:
    program = tmp_path / "chronyc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert chrony_offset(seconds) == expected


def test_a_node_without_chrony_has_no_answer_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chrony_offset() is None


def test_chrony_counts_before_the_kernel() -> None:
    kernel = KernelClock(True, 0.0, 0.002)
    seen = page(ClockCollector(lambda: kernel, lambda: -0.75))
    assert seen['clock_offset_seconds{source="chrony"}'] == -0.75
    assert 'clock_offset_seconds{source="kernel"}' not in seen
    assert (seen["clock_synchronized"], seen["clock_max_error_seconds"]) == (1, 0.002)
    assert page(ClockCollector(lambda: kernel, lambda: None))['clock_offset_seconds{source="kernel"}'] == 0


def test_a_clock_that_is_set_is_a_jump_and_one_that_is_nudged_is_none() -> None:
    times = {"now": 1000.0, "booted": 50.0}
    collector = ClockCollector(
        lambda: KernelClock(False, None, None), lambda: None, lambda: times["now"], lambda: times["booted"]
    )
    assert page(collector)["clock_jumps_total"] == 0
    times.update(now=1015.2, booted=65.0)
    assert page(collector)["clock_jumps_total"] == 0
    times.update(now=1000.0, booted=80.0)
    seen = page(collector)
    assert (seen["clock_jumps_total"], seen["clock_jump_last_timestamp_seconds"]) == (1, 1000)
    times.update(now=1015.0, booted=95.0)
    assert page(collector)["clock_jumps_total"] == 1
