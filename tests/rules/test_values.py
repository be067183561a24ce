"""The numbers in the rules that a team may change are listed, and stand in the rules as they are listed."""

from __future__ import annotations

from tests.rules import promql
from tests.rules.rule_files import FILES, ROOT, exists
from trainwarden.rules.values import check_markers, read_values, substitute

VALUES = read_values(ROOT / "rules/values.yml")


def test_each_marker_has_a_value_and_each_value_a_marker() -> None:
    check_markers(FILES, VALUES)


def test_the_defaults_are_the_rules_as_they_are_byte_for_byte() -> None:
    for file in FILES:
        assert substitute(file.text, {name: value.default for name, value in VALUES.items()}) == file.text


def test_each_meaning_is_one_line_that_says_something() -> None:
    for value in VALUES.values():
        assert 10 < len(value.meaning) < 120, value.name
        assert not value.meaning.endswith("."), value.name


def test_a_history_asks_for_what_exists() -> None:
    for value in VALUES.values():
        names = promql.metrics(promql.parse(value.history)) if value.history else ()
        assert [name for name in names if not exists(name)] == [], value.name
