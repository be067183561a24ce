"""The engines that find literals: whichever is installed, the answers are the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwarden.signals import literals as engines
from trainwarden.signals import search as searching
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

ENGINES = [engines._Hyperscan, engines._Automaton, engines._OneByOne]
Engine = Callable[[Sequence[bytes]], engines.Literals]


def built(engine: Engine, texts: Sequence[bytes]) -> engines.Literals:
    try:
        return engine(texts)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
@given(
    texts=st.lists(st.text("abA.\\*\0é", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=8, unique=True),
    lines=st.lists(st.text("abA.\\*\0é", max_size=20).map(str.encode), max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_every_occurrence_of_every_text_is_found_overlapping_or_not_record_by_record(
    engine: Engine, texts: list[bytes], lines: list[bytes]
) -> None:
    chunk = b"\n".join(lines)
    expected = {
        (index, found.start(), found.start() + len(text))
        for index, text in enumerate(texts)
        for found in re.finditer(b"(?=" + re.escape(text) + b")", chunk)
    }
    hits = list(built(engine, texts).find(chunk))
    assert len(hits) == len(set(hits))
    assert set(hits) == expected
    records = [chunk.count(b"\n", 0, start) for _, start, _ in hits]
    assert records == sorted(records)


@pytest.mark.parametrize("engine", ENGINES[:2], ids=lambda engine: engine.__name__)
@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_all_shipped_signals_find_the_same_with_every_engine(
    engine: Engine, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = load_pack().signals
    examples = [example for signal in signals for example in (*signal.examples, *signal.counterexamples)][::every]
    log = "\n".join(f"{example}\r{index}: {example}" for index, example in enumerate(examples)).encode()

    def answers(chosen: Engine) -> list[tuple[int, str, dict[str, str]]]:
        monkeypatch.setattr(searching, "literals", lambda texts: built(chosen, texts))
        scanner = Scanner(signals)
        found = [match for start in range(0, len(log), 4096) for match in scanner.feed(log[start : start + 4096])]
        found += scanner.finish()
        return [(match.offset, match.signal.name, dict(match.fields)) for match in found]

    expected = answers(engines._OneByOne)
    assert len(expected) > len(signals) / every
    assert answers(engine) == expected


def test_the_fastest_engine_that_is_installed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(engines.literals([b"text"]), engines._OneByOne)
    monkeypatch.setitem(__import__("sys").modules, "hyperscan", None)
    assert isinstance(engines.literals([b"text"]), engines._Automaton)
    monkeypatch.setitem(__import__("sys").modules, "ahocorasick_rs", None)
    assert isinstance(engines.literals([b"text"]), engines._OneByOne)
