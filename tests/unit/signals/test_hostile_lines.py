"""No line hangs a reader or hides what follows it: each shipped pattern is run on lines made of its own texts."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from benchmarks.hostile_lines import LINE_BYTES, hostile_lines
from trainwarden.failures.records import evidence_in
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.signals.scanner import Scanner
from trainwarden.signals.search import SignalSearch

pytestmark = pytest.mark.slow

SIGNALS = {signal.source: signal for name in shipped_packs() for signal in load_pack(name).signals}
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def some_hostile_lines(every: int) -> list[bytes]:
    """Return of each signal every so many hostile lines, and of those beside each other in the list different ones."""
    return [
        line
        for number, signal in enumerate(SIGNALS.values())
        for line in islice(hostile_lines(signal), number % every, None, every)
    ]


def test_a_failure_after_a_hostile_line_is_found() -> None:
    scanner = Scanner(load_pack().signals)
    hidden = []
    lines = some_hostile_lines(every=97)[::2]
    for number, line in enumerate(lines):
        matches = scanner.feed(line + b"\n" + OOM.encode() + b"\n")
        if not any(match.signal.failure == "cuda_oom" and match.line == 2 * number + 2 for match in matches):
            hidden.append(line[:80])
    assert len(lines) > 100
    assert hidden == []
    assert scanner.off == {}


def test_the_library_finds_a_failure_beside_a_hostile_line() -> None:
    hidden = [
        line[:80]
        for line in some_hostile_lines(every=97)[::8]
        if not evidence_in(f"step 1\n{line.decode(errors='replace')}\n{OOM}\nend")
    ]
    assert hidden == []


# A pattern that takes too long for these lines takes hours for one of them.
@pytest.mark.nightly
@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.name)
def test_a_search_without_limits_of_any_hostile_line_ends(signal: Signal) -> None:
    search = SignalSearch([signal], record_seconds=math.inf, search_limit=math.inf)
    for line in hostile_lines(signal):
        assert search.search(line)[1] == 0
        evidence_in(f"step 1\n{line.decode(errors='replace')}\nend")


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_library_finds_what_stands_anywhere_in_a_long_line(every: int) -> None:
    for signal in load_pack().signals[::every]:
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


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_signal_is_found_anywhere_in_a_long_line(every: int) -> None:
    for signal in load_pack().signals[::every]:
        if "^" in signal.pattern or signal.ignore_warnings:
            continue
        scanner = Scanner([signal])
        for example in signal.examples:
            line = example.partition("\n")[0]
            if scanner.feed(line.encode() + b"\n"):
                for before in ("x " * 350, "step 1/2 loss 3 " * 900):
                    assert scanner.feed(f"{before}{line} {'y ' * 3000}\n".encode()), (signal.name, line)
