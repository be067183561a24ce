"""No line takes long: each shipped pattern is run on lines made of its own texts."""

from __future__ import annotations

import math
import time

import pytest

from benchmarks.hostile_lines import LINE_BYTES, hostile_lines
from trainwarden.failures.records import evidence_in
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.signals.scanner import Scanner
from trainwarden.signals.search import SignalSearch

pytestmark = pytest.mark.slow

# A sound pattern needs a hundredth of it for 64 KiB; one whose time grows with the square of the length, ten times it.
SECONDS = 3.0
SIGNALS = {signal.source: signal for name in shipped_packs() for signal in load_pack(name).signals}


def too_slow(signal: Signal, every: int) -> list[bytes]:
    search = SignalSearch([signal], record_seconds=SECONDS, search_limit=math.inf)
    lines = list(hostile_lines(signal))
    return [line[:80] for line in lines[::every] if search.search(line)[1]]


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.name)
def test_a_shipped_pattern_is_run_on_a_hostile_line_in_time(signal: Signal) -> None:
    assert too_slow(signal, every=47) == []


@pytest.mark.nightly
@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.name)
def test_a_shipped_pattern_is_run_on_any_hostile_line_in_time(signal: Signal) -> None:
    assert too_slow(signal, every=1) == []


def slow_in_the_library(signal: Signal, every: int) -> list[bytes]:
    slow = []
    for line in list(hostile_lines(signal))[::every]:
        began = time.thread_time()
        evidence_in(f"step 1\n{line.decode(errors='replace')}\nend")
        if time.thread_time() - began > SECONDS:
            slow.append(line[:80])
    return slow


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.name)
def test_the_library_searches_a_hostile_line_in_time(signal: Signal) -> None:
    assert slow_in_the_library(signal, every=97) == []


@pytest.mark.nightly
@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.name)
def test_the_library_searches_any_hostile_line_in_time(signal: Signal) -> None:
    assert slow_in_the_library(signal, every=1) == []


def test_the_library_finds_what_stands_anywhere_in_a_long_line() -> None:
    for signal in load_pack().signals:
        if "^" in signal.pattern or signal.ignore_warnings or signal.role == "event":
            continue
        for example in signal.examples:
            line = example.partition("\n")[0]
            alone = {each.source.signal for each in evidence_in(line)}
            if signal.name in alone:
                for before in ("x " * 350, "step 1/2 loss 3 " * 900):
                    found = {each.source.signal for each in evidence_in(f"{before}{line} {'y ' * 3000}")}
                    assert found, (signal.name, line)


def test_a_pattern_that_takes_too_long_for_a_line_costs_that_line_alone_and_is_counted() -> None:
    slow = Signal("slow", r"a{0,80}a{0,80}b", literals=("a",), shipped=True)
    oom = Signal("oom", "out of memory", shipped=True)
    scanner = Scanner((slow, oom))
    matches = scanner.feed(b"a" * 60_000 + b" out of memory\nout of memory\n")
    assert [(match.signal.name, match.line) for match in matches] == [("oom", 1), ("oom", 2)]
    assert scanner.records_cut == 1


def test_a_line_full_of_texts_is_searched_in_part_and_counted() -> None:
    signals = [Signal(f"signal{number}", rf"word{number}\w x", literals=("word",), shipped=True) for number in range(9)]
    scanner = Scanner(signals)
    assert scanner.feed(b"word " * (LINE_BYTES // 5) + b"\n") == []
    assert scanner.records_cut == 1


def test_a_signal_is_found_anywhere_in_a_long_line() -> None:
    for signal in load_pack().signals:
        if "^" in signal.pattern or signal.ignore_warnings:
            continue
        scanner = Scanner([signal])
        for example in signal.examples:
            line = example.partition("\n")[0]
            if scanner.feed(line.encode() + b"\n"):
                for before in ("x " * 350, "step 1/2 loss 3 " * 900):
                    assert scanner.feed(f"{before}{line} {'y ' * 3000}\n".encode()), (signal.name, line)
