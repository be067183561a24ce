"""A stream gives the same matches however it comes, whatever is in it."""

from __future__ import annotations

import itertools
import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import cases
from trainwarden.failures.windows import RECORD_LIMIT
from trainwarden.signals import literals as engines
from trainwarden.signals import search as searching
from trainwarden.signals.model import Match, Signal
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import TEXT_LIMIT, Scanner

SIGNALS = (
    Signal("oom", r"out of memory(?:, (?P<size>\d+) bytes)?", shipped=True, extract_groups={"allocation": "size"}),
    Signal("first", r"^fatal: .*$", shipped=True),
    Signal("any_case", r"(?i)segmentation fault"),
    Signal("users", r"(?<!\w)(?P<rank>rank\d+).*(?P=rank) died", source="mine.yaml:3"),
    Signal("no_text", r"\b[45]\d\d\b"),
    Signal("plain", "a.b[c]", pattern_type="substring"),
)
STREAM = (
    b"step 1\rstep 2\rfatal: out of memory, 77 bytes\nnothing\r\n\r\nSEGMENTATION FAULT (core)\n"
    b"rank3 says rank3 died\nrank3 says rank4 died\nstatus 503\nx a.b[c] y\n\xff\xfe out of \x00memory"
    b" out of memory \xe2\x82\n"
    b"out of\nmemory\nlast: out of memory"
)


def seen(matches: list[Match]) -> list[tuple[str, int, int, str]]:
    return [(match.signal.name, match.offset, match.line, match.text) for match in matches]


def single_task(data: bytes, signals: tuple[Signal, ...] = SIGNALS) -> list[Match]:
    scanner = Scanner(signals)
    return scanner.feed(data) + scanner.finish()


def test_each_signal_is_found_once_in_each_record_with_its_place() -> None:
    found = [(match.signal.name, match.line) for match in single_task(STREAM)]
    assert found == [
        ("oom", 1), ("first", 1), ("any_case", 4), ("users", 5), ("no_text", 7), ("plain", 8), ("oom", 9), ("oom", 12),
    ]  # fmt: skip
    for match in single_task(STREAM):
        assert STREAM[match.offset :].decode("utf-8", "replace").startswith(match.text)


def test_a_field_is_what_its_group_caught_and_absent_where_that_took_no_part() -> None:
    first, *_, last = single_task(STREAM)
    assert first.fields == {"allocation": "77"}
    assert last.fields == {}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_into_chunks_gives_the_same_matches(cuts: list[int]) -> None:
    scanner = Scanner(SIGNALS)
    edges = [0, *sorted(cuts), len(STREAM)]
    matches = [match for start, end in itertools.pairwise(edges) for match in scanner.feed(STREAM[start:end])]
    assert seen(matches + scanner.finish()) == seen(single_task(STREAM))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"out of memory ", b"\n", b"\r", b"\r\n", b"x", b"fatal: ", b"\x00"]), max_size=60))
def test_one_byte_at_a_time_gives_the_same_matches(parts: list[bytes]) -> None:
    data, scanner = b"".join(parts), Scanner(SIGNALS)
    matches = [match for index in range(len(data)) for match in scanner.feed(data[index : index + 1])]
    assert seen(matches + scanner.finish()) == seen(single_task(data))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400))
def test_it_goes_on_after_a_restart_without_losing_or_repeating_a_match(noise: bytes, cut: int) -> None:
    data = noise + b"\nout of memory\n" + STREAM + noise
    before, after = Scanner(SIGNALS), Scanner(SIGNALS)
    matches = before.feed(data[:cut])
    state = json.loads(json.dumps(before.state()))
    after.restore(state)
    matches += after.feed(data[state["offset"] :]) + after.finish()
    assert seen(matches) == seen(single_task(data))


@cases("chunk", [1000, RECORD_LIMIT, 10**7])
def test_a_line_without_end_is_searched_at_its_beginning_and_passed_over_in_bounded_memory(chunk: int) -> None:
    beyond = b"." * RECORD_LIMIT
    data = b"ok\nout of memory " + beyond * 20 + b"out of memory\nfatal: b\n" + beyond + b"fatal: c\nfatal: d"
    scanner = Scanner(SIGNALS)
    matches: list[Match] = []
    for start in range(0, len(data), chunk):
        matches += scanner.feed(data[start : start + chunk])
        assert len(scanner._tail) <= RECORD_LIMIT + chunk
    matches += scanner.finish()
    assert [(match.signal.name, match.line) for match in matches] == [("oom", 2), ("first", 3), ("first", 5)]
    assert all(len(match.text) <= TEXT_LIMIT for match in matches)
    assert scanner.records_cut == 2


def test_a_long_record_is_shown_around_what_was_found() -> None:
    (match,) = single_task(b"." * 9000 + b"out of memory" + b"." * 9000, SIGNALS[:1])
    assert "out of memory" in match.text


def test_every_engine_gives_the_same_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = seen(single_task(STREAM * 3))
    monkeypatch.setattr(searching, "literals", engines._OneByOne)
    assert seen(single_task(STREAM * 3)) == fast


def test_a_text_inside_another_is_found_too() -> None:
    signals = (Signal("long", "OutOfMemoryError: x", shipped=True), Signal("short", "Error: ", shipped=True))
    assert [match.signal.name for match in single_task(b"OutOfMemoryError: x\n", signals)] == ["long", "short"]


def test_a_catastrophic_pattern_loses_its_own_signal_and_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    slow = Signal("slow", r"(a|a)+b(?<=x)y", source="mine.yaml:12")
    scanner = Scanner((slow, *SIGNALS))
    lines = b"".join(b"a" * 40 + b"b\nout of memory\n" for _ in range(6))
    with caplog.at_level(logging.ERROR):
        matches = scanner.feed(lines)
    assert [match.signal.name for match in matches] == ["oom"] * 6
    assert "3 records took longer" in scanner.off["slow"]
    assert "mine.yaml:12" in caplog.text and "slow" in caplog.text
    again = Scanner((slow,))
    again.restore(scanner.state())
    assert "slow" in again.off


def test_signals_that_no_text_vouches_for_are_named() -> None:
    assert Scanner(SIGNALS).slow == ("no_text",)


def test_a_warning_is_no_match_where_the_signal_ignores_warnings() -> None:
    signal: Any = Signal("calm", "it broke", shipped=True, ignore_warnings=True)
    data = b"WARNING it broke\nit broke, retrying\nERROR it broke\nit broke\n"
    assert [match.line for match in single_task(data, (signal,))] == [3, 4]


def test_colours_hide_no_signal() -> None:
    coloured = b"\x1b[31mfatal: \x1b[1mout of memory\x1b[0m, 5 bytes\x1b[0m\n"
    assert [match.signal.name for match in Scanner(SIGNALS).feed(coloured)] == ["oom", "first"]


def test_a_record_counts_once_for_a_failure() -> None:
    scanner = Scanner(load_pack().signals)
    matches = scanner.feed(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert [match.signal.name for match in matches if match.signal.failure == "cuda_oom"] == ["cuda_oom"]
