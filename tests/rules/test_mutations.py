"""The files in rules/tests bite: of all the ways to break a rule they notice nearly every one."""

from __future__ import annotations

import os
import re

import pytest

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
of_files = pytest.mark.parametrize("file", [file.name for file in FILES])


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle(ROOT / "rules")


@pytest.mark.nightly
@pytest.mark.tools
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", MEASURED)
def test_what_is_broken_is_noticed(tools: Tools, bundle: Bundle, file: str) -> None:
    score = judge(file, bundle, tools.promtool, os.cpu_count() or 1)
    assert score.ratio >= LEAST, "\n".join([str(score), *score.survivors])


@of_files
def test_what_is_excused_is_a_way_to_break_the_file_and_has_a_reason(bundle: Bundle, file: str) -> None:
    reasons = equivalents(file)
    assert reasons.keys() <= {each.title for each in bundle.broken(file)}
    assert all(len(reason) > 20 for reason in reasons.values())


@of_files
def test_the_page_counts_the_ways_to_break_the_file_as_it_is(bundle: Bundle, file: str) -> None:
    assert MEASURED.get(file) == len(bundle.broken(file)), (
        f"python -m tests.rules.mutations --write docs/rules.md {file}"
    )


@of_files
def test_each_way_to_break_a_file_has_a_name_of_its_own(bundle: Bundle, file: str) -> None:
    titles = [each.title for each in bundle.broken(file)]
    assert len(set(titles)) == len(titles)
