"""What a linter knows of PromQL: rules that can never fire, lose a label, cost too much or name what does not exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.offenders import assert_none
from tests.rules import promql
from tests.rules.rule_files import FILES, RULES, TITLED, TITLED_ALERTS, exists
from trainwarden.duration import parse_duration

MAX_WINDOW = 6 * 3600
# Windows of days, on series that are few.
LONG_WINDOWS = {"recording/goodput.yml", "recording/remediation.yml"}
# An alert can wait, or be kept, for no longer.
MAX_WAIT = 3600
INTERVALS = {"10s", "15s", "30s", "1m", "2m"}


@cache
def nodes(expression: str) -> list[promql.Node]:
    """Return all nodes of an expression."""
    return list(promql.parse(expression).walk())


def every_node() -> Iterator[tuple[str, promql.Node]]:
    """Yield each node of each rule, with the place of the rule."""
    for title, rule in TITLED:
        for node in nodes(str(rule["expr"])):
            yield title, node


def asked_by_texts(rule: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of the annotations of an alert."""
    for text in rule.get("annotations", {}).values():
        asked = re.findall(r"printf \"((?:\\.|[^\"\\])*)\"[^}]*\| query", text) + re.findall(
            r"query \"([^\"]*)\"", text
        )
        yield from (query.replace('\\"', '"').replace("%q", '"x"') for query in asked)


def test_every_metric_exists() -> None:
    assert_none(
        f"{title}: there is no {name}"
        for title, rule in TITLED
        for query in (str(rule["expr"]), *asked_by_texts(rule))
        for name in promql.metrics(promql.parse(query))
        if not exists(name)
    )
    assert sum(1 for _, rule in TITLED_ALERTS for _ in asked_by_texts(rule)) > 20, "the texts ask nothing"


def test_cluster_comes_first_in_every_list_and_no_label_is_lost_by_name() -> None:
    def lists() -> Iterator[str]:
        for title, node in every_node():
            if node.kind == "aggregation" and not node.lists:
                yield f"{title}: {node.name} without by loses every label"
            for each in node.lists:
                shown = f"{each.keyword} ({', '.join(each.names)})"
                if each.keyword in {"without", "ignoring"}:
                    yield f"{title}: {shown} keeps what another exporter adds"
                if each.keyword in {"by", "on"} and each.names[:1] != ["cluster"]:
                    yield f"{title}: {shown} does not begin with cluster"
                if len(set(each.names)) < len(each.names):
                    yield f"{title}: {shown} has a label twice"

    assert_none(lists())


def test_a_set_operation_names_what_it_compares() -> None:
    assert_none(
        f"{title}: {node.name} without on"
        for title, node in every_node()
        if node.kind == "binary" and node.name in {"and", "unless"}
        if not [each for each in node.lists if each.keyword == "on"]
    )


def test_no_window_is_longer_than_six_hours() -> None:
    assert_none(
        f"{title}: a window of {node.window.text}"
        for title, node in every_node()
        if node.window is not None and title.partition(":")[0] not in LONG_WINDOWS
        if parse_duration(node.window.text) > MAX_WINDOW
    )


def test_a_pattern_is_one() -> None:
    def patterns() -> Iterator[str]:
        for title, node in every_node():
            for label, operator, value in node.matchers:
                if operator not in {"=~", "!~"}:
                    continue
                shown = f"{title}: {label}{operator}{value!r}"
                if not re.search(r"[|.*+?\[(\\]", value):
                    yield f"{shown} is {operator[0]}="
                if value in {".*", "^.*$"}:
                    yield f"{shown} selects everything"
                if re.match(r"\^|.*[^\\]\$$", value):
                    yield f"{shown}: Prometheus anchors both ends itself"
                try:
                    re.compile(value)
                except re.error as error:
                    yield f"{shown}: {error}"

    assert_none(patterns())


def compares(node: promql.Node) -> bool:
    """Return whether what comes of a node depends on a comparison, or on what is absent."""
    return (node.kind == "binary" and node.name in promql.COMPARISONS | {"unless"}) or (
        node.kind == "call" and node.name.startswith("absent")
    )


def test_an_alert_is_the_outcome_of_a_comparison() -> None:
    """Its own, or that of a recording that it reads; only the dead-man's switch always fires."""
    comparing = {
        rule["record"] for _, rule in TITLED if "record" in rule if any(map(compares, nodes(str(rule["expr"]))))
    }
    assert_none(
        f"{title}: it compares nothing, and always fires"
        for title, rule in TITLED_ALERTS
        if rule["labels"]["severity"] != "none"
        if not any(map(compares, nodes(str(rule["expr"]))))
        if not comparing & set(promql.metrics(promql.parse(str(rule["expr"]))))
    )


def test_an_alert_waits_and_lasts_within_bounds() -> None:
    def waits() -> Iterator[str]:
        for title, rule in TITLED_ALERTS:
            for key in ("for", "keep_firing_for"):
                if key in rule and parse_duration(rule[key]) > MAX_WAIT:
                    yield f"{title}: {key} {rule[key]}, at most {MAX_WAIT} s"
            is_absence = any(node.kind == "call" and node.name == "absent" for node in nodes(str(rule["expr"])))
            if is_absence and parse_duration(rule.get("for", "1ms")) < 30:
                yield f"{title}: a Prometheus that starts has seen nothing yet, it waits for less than 30 s"

    assert_none(waits())


def test_names_are_unique_and_follow_the_convention() -> None:
    conventions = {"record": r"[a-z0-9_]+:[a-z0-9_]+:[a-z0-9_]+", "alert": r"Train[A-Z][A-Za-z0-9]+"}
    assert_none(
        f"{title}: expected a name as {pattern}"
        for title, rule in TITLED
        for kind, pattern in conventions.items()
        if kind in rule and not re.fullmatch(pattern, rule[kind])
    )
    homes = {(rule.get("alert", rule.get("record")), file.name) for file, rule in RULES}
    assert_none(f"{name}: in {files} files" for name, files in Counter(name for name, _ in homes).items() if files > 1)


def test_no_rule_stands_twice() -> None:
    seen: dict[str, str] = {}

    def copies() -> Iterator[str]:
        for title, rule in TITLED:
            body = json.dumps({key: value for key, value in rule.items() if key != "annotations"}, sort_keys=True)
            if seen.setdefault(body, title) != title:
                yield f"{title}: the same as {seen[body]}"

    assert_none(copies())


def test_groups_have_names_of_their_own_and_an_interval() -> None:
    groups = [(file.name, group) for file in FILES for group in file.groups]
    names = Counter(group["name"] for _, group in groups)
    assert_none(
        f"{name}: {group['name']}: expected a name of its own and an interval of {sorted(INTERVALS)}"
        for name, group in groups
        if names[group["name"]] > 1 or group.get("interval") not in INTERVALS
    )


def test_an_alert_of_one_name_is_told_apart_by_its_labels() -> None:
    seen: dict[tuple[object, ...], str] = {}
    assert_none(
        f"{title}: has all labels of {seen[labels]}"
        for title, rule in TITLED_ALERTS
        if seen.setdefault(labels := (rule["alert"], *sorted(rule["labels"].items())), title) != title
    )
