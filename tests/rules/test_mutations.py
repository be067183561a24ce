"""The files in rules/tests bite: of all the ways to break a rule they notice nearly every one."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from tests.offenders import assert_none
from tests.rules.mutations import ROOT, Bundle, equivalents, judge
from tests.rules.rule_files import FILES
from trainwarden.stack.binaries import Tools

LEAST = 0.95
# The ways to break each rule file, as the page counts them.
MEASURED = {
    name: int(count)
    for name, count in re.findall(
        r"^\| ((?:alerts|recording)/\w+\.yml) \| (\d+) \|", (ROOT / "docs/rules.md").read_text("utf-8"), re.MULTILINE
    )
}


@pytest.mark.nightly
@pytest.mark.tools
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", MEASURED)
def test_what_is_broken_is_noticed(tools: Tools, bundle: Bundle, file: str) -> None:
    score = judge(file, bundle, tools.promtool, os.cpu_count() or 1)
    assert score.ratio >= LEAST, "\n".join([str(score), *score.survivors])


@pytest.fixture(scope="module")
def titles(bundle: Bundle) -> dict[str, list[str]]:
    """The ways to break each file."""
    return {file.name: [each.title for each in bundle.broken(file.name)] for file in FILES}


def test_what_is_excused_is_a_way_to_break_the_file_and_has_a_reason(titles: dict[str, list[str]]) -> None:
    assert_none(
        f"{file}: {title}: {reason}"
        for file, ways in titles.items()
        for title, reason in equivalents(file).items()
        if title not in ways or len(reason) <= 20
    )


def test_the_page_counts_the_ways_to_break_each_file_as_it_is(titles: dict[str, list[str]]) -> None:
    assert_none(
        f"{file}: {MEASURED.get(file)} on the page, {len(ways)} in truth: "
        f"python -m tests.rules.mutations --write docs/rules.md {file}"
        for file, ways in titles.items()
        if MEASURED.get(file) != len(ways)
    )


def test_each_way_to_break_a_file_has_a_name_of_its_own(titles: dict[str, list[str]]) -> None:
    assert_none(
        f"{file}: {title}" for file, ways in titles.items() for title, count in Counter(ways).items() if count > 1
    )
