"""The rules of grafana/dashboard-linter, each by its name: what it asks of our dashboards, or why it is left out.

What they ask is taken from its documents and messages: https://github.com/grafana/dashboard-linter/tree/main/docs/rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.offenders import assert_none
from tests.rules import promql
from tests.rules.dashboards import DASHBOARDS, VALUES, Question, dashboard, every_panel, every_target, variables
from tests.rules.grafana_models import VERSIONS, models

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
    "train-finetuning: Jobs E",
    "train-node: Errors of memory and links A",
    "train-node: Errors of memory and links B",
    "train-node: What the kernel reported A",
    "train-node: XIDs A",
    "train-remediation: Messages to people A",
}
KEPT = {
    "template-datasource-rule", "template-label-promql-rule", "template-on-time-change-reload-rule",
    "panel-datasource-rule", "panel-title-description-rule", "panel-units-rule", "panel-no-targets-rule",
    "target-promql-rule", "target-rate-interval-rule", "target-counter-agg-rule", "uneditable-dashboard",
}  # fmt: skip


def selectors(
    node: promql.Node, above: tuple[promql.Node, ...] = ()
) -> Iterator[tuple[promql.Node, tuple[promql.Node, ...]]]:
    """Yield each selector, with the nodes that it is in."""
    if node.kind == "selector":
        yield node, above
    for child in node.children:
        yield from selectors(child, (*above, node))


def refused(expr: str) -> str:
    """Return why an expression is no PromQL; empty if it is."""
    try:
        promql.parse(Question("", expr).asked())
    except (KeyError, ValueError) as error:
        return repr(error)
    return ""


def test_each_rule_is_kept_or_left_out_with_a_reason() -> None:
    assert not KEPT & EXCLUDED.keys()
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert sorted(KEPT - tests) == []
    assert all(len(reason) > 20 for reason in EXCLUDED.values())


def test_template_datasource_rule() -> None:
    sources = [each for _, each in variables() if each["type"] == "datasource"]
    assert len(sources) == len(DASHBOARDS)
    assert {(source["name"], source["label"], source["query"]) for source in sources} == {
        ("datasource", "Data source", "prometheus")
    }


def test_template_label_promql_rule() -> None:
    def wrong() -> Iterator[str]:
        for place, variable in variables():
            if variable["type"] == "query":
                query = re.fullmatch(r"query_result\((.*)\)", variable["query"]["query"])
                if query is None:
                    yield f"{place}: {variable['query']['query']} is no query_result(…)"
                elif why := refused(query[1]):
                    yield f"{place}: {why}"

    assert_none(wrong())


def test_template_on_time_change_reload_rule() -> None:
    assert_none(
        f"{place}: refresh {variable['refresh']}"
        for place, variable in variables()
        if variable["type"] == "query" and variable["refresh"] != 2
    )


def test_panel_datasource_rule() -> None:
    assert_none(
        f"{place}: data source {each['datasource']['uid']}"
        for place, each in (*every_panel(), *every_target())
        if each["datasource"]["uid"] != SOURCE
    )


def test_panel_title_description_rule() -> None:
    assert_none(
        f"{place}: no title or no description"
        for place, panel in every_panel()
        if not (panel["title"] and panel["description"])
    )


def test_panel_units_rule() -> None:
    units = frozenset.intersection(*(models(version).units for version in VERSIONS))
    assert_none(
        f"{place}: unit {unit}"
        for place, unit in ((place, panel["fieldConfig"]["defaults"]["unit"]) for place, panel in every_panel())
        if unit not in units and not unit.startswith("suffix:")
    )


def test_panel_no_targets_rule() -> None:
    assert_none(
        f"{place}: type {panel['type']}, {len(panel['targets'])} queries"
        for place, panel in every_panel()
        if panel["type"] not in WITH_QUERIES or not panel["targets"]
    )


def test_target_promql_rule() -> None:
    assert_none(f"{place}: {why}" for place, target in every_target() if (why := refused(target["expr"])))


def test_target_rate_interval_rule() -> None:
    values = {**VALUES, "$__rate_interval": "77s"}
    assert_none(
        f"{place}: {target['expr']}"
        for place, target in every_target()
        for node in promql.parse(Question("", target["expr"]).asked(values)).walk()
        if node.kind == "call" and node.name in {"rate", "irate", "increase"}
        if (window := node.children[0].window) is None or window.text != "77s"
    )


def test_target_counter_agg_rule() -> None:
    totals = set()
    for place, target in every_target():
        for selector, above in selectors(promql.parse(Question("", target["expr"]).asked())):
            calls = [node.name for node in above if node.kind == "call"]
            is_rate = bool(calls) and calls[-1] in {"rate", "irate", "increase"} and above[-1].kind == "range"
            if selector.name.endswith("_total") and not is_rate:
                totals.add(place)
    assert_none(f"{place}: a counter without a rate" for place in sorted(totals - TOTALS))
    assert_none(f"{place}: excused in vain" for place in sorted(TOTALS - totals))


def test_uneditable_dashboard() -> None:
    assert_none(f"{path.stem}: editable" for path in DASHBOARDS if dashboard(path)["editable"] is not False)


def test_no_query_is_of_loki() -> None:
    assert {target["datasource"]["type"] for _, target in every_target()} == {"prometheus"}
    assert_none(f"{path.stem}: Loki" for path in DASHBOARDS if "loki" in path.read_text(encoding="utf-8").lower())
