"""Shipped expressions are searched in bounded time: no repeat without a limit, no sight beyond a known reach."""

from __future__ import annotations

import re
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import cases
from trainwarden.signals.expressions import (
    REACH_LIMIT,
    after_gap,
    alternatives,
    bounded,
    reach_of,
    sees_digits,
)
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.signals.patterns import compiled
from trainwarden.signals.required import covering

SIGNALS = {f"{name}-{signal.name}": signal for name in shipped_packs() for signal in load_pack(name).signals}


@cases(
    ("pattern", "expected"),
    [
        (r"a\d+ +\w*.*?\S+", r"a\d{1,20} {1,40}\w{0,80}.{0,300}?\S{1,200}"),
        (r"[*+]+\*\+(?:x|\()*[^]*]{3,}", r"[*+]{1,200}\*\+(?:x|\(){0,200}[^]*]{3,200}"),
        (r"\d{4,} a{2} {1,3} b?", r"\d{4,20} a{2} {1,3} b?"),
    ],
)
def test_every_repeat_gets_a_limit(pattern: str, expected: str) -> None:
    assert bounded(pattern) == expected
    re.compile(bounded(pattern))


@cases(
    ("pattern", "reach"),
    [
        ("abc", 3), ("a(?:bc|d){0,3}e", 8), (r"a(?=.{0,40}x)b", 42), (r"a$", 2), (r"(?<!abc)d", 1), (r"(ab)c\1", 5),
        (r"a+", None), (r"(?:a*b){0,3}", None), (r"a(?!.*b)", None), ("é", 2),
    ],
)  # fmt: skip
def test_the_reach_is_what_a_match_can_span_with_what_it_looks_ahead_at(pattern: str, reach: int | None) -> None:
    assert reach_of(pattern) == reach


def test_alternatives_are_what_stands_between_the_outermost_bars() -> None:
    assert alternatives(r"a|b(?:c|d)|[|]\|") == ("a", "b(?:c|d)", r"[|]\|")
    assert alternatives(r"(?i)(?P<message>a|b.*)") == ("(?i)(?P<message>a)", "(?i)(?P<message>b.*)")
    assert alternatives(r"(?:a|b)c") == ("(?:a|b)c",)
    assert after_gap(r"a.{0,80}(?:b|c(?:d|e))f") == ("a.{0,80}", "f", ("b", "c(?:d|e)"))
    assert after_gap(r"a.{0,80}(?:b|c)?d") == ("", "", ())


@cases(
    ("pattern", "sees"),
    [(r"\d+ x \w", False), ("[0-9a-f]", False), ("Errno 5", True), ("[1-9]", True), ("a[^3]", True)],
)
def test_a_pattern_sees_digits_where_they_distinguish_one_from_another(pattern: str, sees: bool) -> None:
    assert sees_digits(pattern) is sees


@cases("signal", SIGNALS.values(), ids=SIGNALS)
def test_a_shipped_pattern_is_valid_and_bounded(signal: Signal) -> None:
    re.compile(signal.pattern)
    assert all(isinstance(group, str) for group in signal.extract_groups.values())
    assert set(signal.extract_groups.values()) <= set(re.compile(signal.pattern).groupindex)
    for part in compiled(signal):
        assert part.reach is not None
        assert part.reach <= REACH_LIMIT, part
        assert part.required is not None, part


@cases("signal", SIGNALS.values(), ids=SIGNALS)
def test_what_matches_holds_one_of_the_texts_that_its_pattern_requires(signal: Signal) -> None:
    for part in compiled(signal):
        assert part.required is not None
        for example in signal.examples:
            line = example.encode()
            found = part.search(line, 0, len(line))
            if found is not None:
                matched = found[1][0] if not part.required.caseless else found[1][0].lower()
                assert any(text.encode() in matched for text in part.required.texts), (example, part.required.texts)


def test_texts_that_a_pattern_does_not_hold_cover_nothing() -> None:
    assert covering(r"node (?:failure|loss) on \S+", ["failure on", "loss", "node"]) == ("node",)
    assert covering(r"a(?:failure|loss)", ["failure", "loss"]) == ("failure", "loss")
    assert covering(r"a(?:failure|loss)", ["failure"]) == ()
    assert covering(r"(?i)failure", ["failure"]) == ()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("ab|(?:)[]\\+*.d {}0,1"), max_size=12))
def test_limits_make_no_pattern_invalid_and_let_no_other_text_match(letters: list[str]) -> None:
    pattern = "".join(letters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            whole = re.compile(pattern)
        except re.error:
            return
        limited = re.compile(bounded(pattern))
    for text in ("", "a", "ab", "aab b", "a.b[d]", "ba{0,1}"):
        assert (whole.fullmatch(text) is None) == (limited.fullmatch(text) is None), (pattern, bounded(pattern), text)
