"""What a linter knows of PromQL: rules that can never fire, lose a label, cost too much or name what does not exist."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.rules import promql
from tests.rules.rule_files import ALERTS, FILES, RULES, exists, of_alerts
from trainwarden.duration import parse_duration
from trainwarden.rules.files import RuleFile

MAX_WINDOW = 6 * 3600
# Windows of days, on series that are few.
LONG_WINDOWS = {"recording/goodput.yml", "recording/remediation.yml"}
# An alert can wait, or be kept, for no longer.
MAX_WAIT = 3600
INTERVALS = {"10s", "15s", "30s", "1m", "2m"}

of_rules = pytest.mark.parametrize(
    ("file", "rule"),
    RULES,
    ids=[f"{file.name}-{number}-{rule.get('alert', rule.get('record'))}" for number, (file, rule) in enumerate(RULES)],
)


def tree(rule: dict[str, Any]) -> promql.Node:
    return promql.parse(str(rule["expr"]))


@of_rules
def test_every_metric_exists(file: RuleFile, rule: dict[str, Any]) -> None:
    missing = {name for name in promql.metrics(tree(rule)) if not exists(name)}
    for text in rule.get("annotations", {}).values():
        asked = re.findall(r"printf \"((?:\\.|[^\"\\])*)\"[^}]*\| query", text) + re.findall(
            r"query \"([^\"]*)\"", text
        )
        for query in asked:
            plain = query.replace('\\"', '"').replace("%q", '"x"')
            missing |= {name for name in promql.metrics(promql.parse(plain)) if not exists(name)}
    assert not missing


@of_rules
def test_cluster_comes_first_in_every_list_and_no_label_is_lost_by_name(file: RuleFile, rule: dict[str, Any]) -> None:
    for node in tree(rule).walk():
        if node.kind == "aggregation":
            assert node.lists, f"{node.name} without by loses every label"
        for each in node.lists:
            assert each.keyword not in {"without", "ignoring"}, f"{each.keyword} keeps what another exporter adds"
            if each.keyword in {"by", "on"}:
                assert each.names[:1] == ["cluster"], f"{each.keyword} ({', '.join(each.names)})"
            assert len(set(each.names)) == len(each.names)


@of_rules
def test_a_set_operation_names_what_it_compares(file: RuleFile, rule: dict[str, Any]) -> None:
    for node in tree(rule).walk():
        if node.kind == "binary" and node.name in {"and", "unless"}:
            assert [each for each in node.lists if each.keyword == "on"], f"{node.name} without on"


@of_rules
def test_no_window_is_longer_than_six_hours(file: RuleFile, rule: dict[str, Any]) -> None:
    windows = [node.window.text for node in tree(rule).walk() if node.window is not None]
    assert file.name in LONG_WINDOWS or all(parse_duration(window) <= MAX_WINDOW for window in windows), windows


@of_rules
def test_a_pattern_is_one(file: RuleFile, rule: dict[str, Any]) -> None:
    for node in tree(rule).walk():
        for label, operator, value in node.matchers:
            if operator in {"=~", "!~"}:
                assert re.search(r"[|.*+?\[(\\]", value), f"{label}{operator}{value!r} is {operator[0]}="
                re.compile(value)
                assert value not in {".*", "^.*$"}
                assert not re.match(r"\^|.*[^\\]\$$", value), "Prometheus anchors both ends itself"


@of_alerts
def test_an_alert_is_the_outcome_of_a_comparison(rule: dict[str, Any]) -> None:
    if rule["labels"]["severity"] == "none":  # the dead-man's switch always fires
        return
    nodes = [node for each in (rule, *_conditions(rule)) for node in tree(each).walk()]
    assert any(
        (node.kind == "binary" and node.name in promql.COMPARISONS | {"unless"})
        or (node.kind == "call" and node.name.startswith("absent"))
        for node in nodes
    )


def _conditions(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """The recordings that an alert stands on."""
    read = set(promql.metrics(tree(rule)))
    return [each for _, each in RULES if each.get("record") in read]


@of_alerts
def test_an_alert_waits_and_lasts_within_bounds(rule: dict[str, Any]) -> None:
    for key in ("for", "keep_firing_for"):
        assert key not in rule or parse_duration(rule[key]) <= MAX_WAIT
    if any(node.kind == "call" and node.name == "absent" for node in tree(rule).walk()):
        assert parse_duration(rule.get("for", "1ms")) >= 30, "a Prometheus that starts has seen nothing yet"


def test_names_are_unique_and_follow_the_convention() -> None:
    for file, rule in RULES:
        if "record" in rule:
            assert re.fullmatch(r"[a-z0-9_]+:[a-z0-9_]+:[a-z0-9_]+", rule["record"]), file.name
        else:
            assert re.fullmatch(r"Train[A-Z][A-Za-z0-9]+", rule["alert"]), file.name
    homes = {(rule["alert"], file.name) for file in FILES for rule in file.alerts}
    assert [name for name, files in Counter(name for name, _ in homes).items() if files > 1] == []
    recorded = {(rule["record"], file.name) for file, rule in RULES if "record" in rule}
    assert [name for name, files in Counter(name for name, _ in recorded).items() if files > 1] == []


def test_no_rule_stands_twice() -> None:
    bodies = Counter(
        yaml.safe_dump({key: value for key, value in rule.items() if key not in {"annotations", "record"}})
        + ("" if "alert" in rule else str(rule.get("record", "")))
        for _, rule in RULES
    )
    assert [body for body, times in bodies.items() if times > 1] == []


def test_groups_have_names_of_their_own_and_an_interval() -> None:
    groups = [group for file in FILES for group in file.groups]
    assert len({group["name"] for group in groups}) == len(groups)
    assert {group.get("interval") for group in groups} <= INTERVALS


def test_an_alert_of_one_name_is_told_apart_by_its_labels() -> None:
    labels = Counter((rule["alert"], *sorted(rule["labels"].items())) for rule in ALERTS)
    assert [each for each, times in labels.items() if times > 1] == []
