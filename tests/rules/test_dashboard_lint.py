"""The rules of grafana/dashboard-linter, each by its name: what it asks of our dashboards, or why it is left out.

What they ask is taken from its documents and messages: https://github.com/grafana/dashboard-linter/tree/main/docs/rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules import promql
from tests.rules.dashboards import DASHBOARDS, VALUES, Question, dashboard, panels
from tests.rules.grafana_models import VERSIONS, models

of_dashboards = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
SOURCE = "${datasource}"
WITH_QUERIES = {"stat", "timeseries", "table", "state-timeline"}
# A rule that is not kept: why, and what is asked instead.
EXCLUDED = {
    "template-job-rule": "series are chosen by cluster, run and node; the job of an exporter may have any name that "
    "begins as the rules ask",
    "template-instance-rule": "nodes are chosen by node; a dashboard about one instance has the variable",
    "target-job-rule": "most queries are of recorded series, which have no job; each is of the chosen cluster instead",
    "target-instance-rule": "recorded series have no instance",
    "target-logql-rule": "no dashboard has a query of Loki, which is asked below",
    "target-logql-auto-rule": "no dashboard has a query of Loki, which is asked below",
}
# Panels that show how many there have been, not how often: of rare events a rate says nothing, and those of the
# remediator are counted in its database, whatever restarts.
TOTALS = {
    "train-finetuning": {"Jobs E"},
    "train-node": {
        "XIDs A", "Errors of memory and links A", "Errors of memory and links B", "What the kernel reported A"
    },
    "train-remediation": {"Messages to people A"},
}  # fmt: skip
KEPT = {
    "template-datasource-rule", "template-label-promql-rule", "template-on-time-change-reload-rule",
    "panel-datasource-rule", "panel-title-description-rule", "panel-units-rule", "panel-no-targets-rule",
    "target-promql-rule", "target-rate-interval-rule", "target-counter-agg-rule", "uneditable-dashboard",
}  # fmt: skip


def targets(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels(found):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target


def selectors(
    node: promql.Node, above: tuple[promql.Node, ...] = ()
) -> Iterator[tuple[promql.Node, tuple[promql.Node, ...]]]:
    """Yield each selector, with the nodes that it is in."""
    if node.kind == "selector":
        yield node, above
    for child in node.children:
        yield from selectors(child, (*above, node))


def test_each_rule_is_kept_or_left_out_with_a_reason() -> None:
    assert not KEPT & EXCLUDED.keys()
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert tests >= KEPT
    assert all(len(reason) > 20 for reason in EXCLUDED.values())


@of_dashboards
def test_template_datasource_rule(path: Path) -> None:
    (source,) = [each for each in dashboard(path)["templating"]["list"] if each["type"] == "datasource"]
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")


@of_dashboards
def test_template_label_promql_rule(path: Path) -> None:
    """Parsing raises `ValueError` for what is no PromQL."""
    for variable in dashboard(path)["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"query_result\((.*)\)", variable["query"]["query"])
            assert query, variable["name"]
            promql.parse(Question("", query[1]).asked())


@of_dashboards
def test_template_on_time_change_reload_rule(path: Path) -> None:
    variables = [each for each in dashboard(path)["templating"]["list"] if each["type"] == "query"]
    assert {each["refresh"] for each in variables} == {2}


@of_dashboards
def test_panel_datasource_rule(path: Path) -> None:
    found = dashboard(path)
    assert {panel["datasource"]["uid"] for panel in panels(found)} == {SOURCE}
    assert {target["datasource"]["uid"] for _, target in targets(found)} == {SOURCE}


@of_dashboards
def test_panel_title_description_rule(path: Path) -> None:
    assert [panel["id"] for panel in panels(dashboard(path)) if not (panel["title"] and panel["description"])] == []


@of_dashboards
def test_panel_units_rule(path: Path) -> None:
    units = frozenset.intersection(*(models(version).units for version in VERSIONS))
    for panel in panels(dashboard(path)):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert unit in units or unit.startswith("suffix:"), panel["title"]


@of_dashboards
def test_panel_no_targets_rule(path: Path) -> None:
    found = panels(dashboard(path))
    assert {panel["type"] for panel in found} <= WITH_QUERIES
    assert [panel["title"] for panel in found if not panel["targets"]] == []


@of_dashboards
def test_target_promql_rule(path: Path) -> None:
    """Parsing raises `ValueError` for what is no PromQL."""
    for _, target in targets(dashboard(path)):
        promql.parse(Question("", target["expr"]).asked())


@of_dashboards
def test_target_rate_interval_rule(path: Path) -> None:
    values = {**VALUES, "$__rate_interval": "77s"}
    for name, target in targets(dashboard(path)):
        for node in promql.parse(Question("", target["expr"]).asked(values)).walk():
            if node.kind == "call" and node.name in {"rate", "irate", "increase"}:
                (ranged,) = node.children
                assert ranged.window is not None and ranged.window.text == "77s", name


@of_dashboards
def test_target_counter_agg_rule(path: Path) -> None:
    totals = set()
    for name, target in targets(dashboard(path)):
        for selector, above in selectors(promql.parse(Question("", target["expr"]).asked())):
            calls = [node.name for node in above if node.kind == "call"]
            is_rate = bool(calls) and calls[-1] in {"rate", "irate", "increase"} and above[-1].kind == "range"
            if selector.name.endswith("_total") and not is_rate:
                totals.add(name)
    assert totals == TOTALS.get(path.stem, set())


@of_dashboards
def test_uneditable_dashboard(path: Path) -> None:
    assert dashboard(path)["editable"] is False


@of_dashboards
def test_no_query_is_of_loki(path: Path) -> None:
    assert {target["datasource"]["type"] for _, target in targets(dashboard(path))} == {"prometheus"}
    assert "loki" not in json.dumps(dashboard(path)).lower()
