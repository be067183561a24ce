"""Texts that every match of a pattern holds: right for any pattern, and found for those that have one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import cases
from trainwarden.signals.required import required_texts

PATTERNS = [
    r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ [KMG]iB)",
    r"(?:foo|bar)+baz",
    r"(?:one|two|three)(?: four)?five",
    r"x{2,4}abcd",
    r"(?:abcd|efgh){0,3}ijkl",
    r"[Ff]ailed to (?:save|load)",
    r"[abc]xyz[de]",
    r"(?i)ncclSystemError|NCCL error",
    r"(?:(?:deep(?:er|est)) nested|other text)",
    r"(?P<q>['\"])quoted(?P=q)",
    r"abc(?=def)def|ghij",
    r"(?!never)always",
    r"(?<=before )after",
    r"lazy.*?text",
    r"^anchored$",
    r"(?x) verbose \s+ mode  # comment",
    r"(?:)nothing?",
]


@cases("pattern", PATTERNS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_match_is_without_a_required_text(pattern: str, data: st.DataObject) -> None:
    required = required_texts(pattern)
    assert required is not None
    text = data.draw(st.from_regex(pattern))
    searched = text.lower() if required.caseless else text
    assert any(each in searched for each in required.texts), (required, text)


@cases(
    ("pattern", "texts"),
    [
        (r"Xid \(PCI:\S+\): \d+", {"Xid (PCI:"}),
        (r"(?:TIME|NODE) LIMIT", {"TIME LIMIT", "NODE LIMIT"}),
        (r"[Oo]ut of memory", {"ut of memory"}),
        (r"(?i)Out Of Memory", {"out of memory"}),
        (r"loss: (?:nan|inf)\b", {"loss: nan", "loss: inf"}),
        (r"\d+ errors? found", {" error found", " errors found"}),
    ],
)
def test_the_text_that_is_looked_for_is_the_rarest(pattern: str, texts: set[str]) -> None:
    required = required_texts(pattern)
    assert required is not None
    assert set(required.texts) == texts


@cases("pattern", [r"\d+", r"a|b", r"(?:abcd)?", r"[a-z]+", r"abcd|.", r"(?i)ärger", r"a|bcdef", r"(?i:scoped) rest"])
def test_nothing_is_promised_where_nothing_is_certain(pattern: str) -> None:
    assert required_texts(pattern) is None


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(re.error):
        required_texts("(unclosed")
