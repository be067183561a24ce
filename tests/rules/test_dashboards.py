"""Dashboards are current, keep the rules of good dashboards, and read what exists."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.offenders import assert_none
from tests.rules import promql
from tests.rules.dashboards import (
    DASHBOARDS,
    FOLDER,
    VALUES,
    dashboard,
    every_panel,
    every_question,
    questions,
    variables,
)
from tests.rules.rule_files import NAMES, ROOT, TITLED_ALERTS, exists

# Ids of Grafana's units that the dashboards may use, by what they mean.
UNITS = {
    "short", "percentunit", "percent", "s", "bytes", "Bps", "ops", "watt", "celsius", "hertz", "currencyUSD",
    "suffix: GPU h",
}  # fmt: skip
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# That of Grafana 10.0; a later one migrates it.
SCHEMA = 38


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's models need Python 3.11")
def test_the_files_are_what_the_source_makes(tmp_path: Path) -> None:
    from grafana.source.__main__ import main

    main([str(tmp_path)])
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS}, "make docs"


def test_every_query_is_about_the_cluster_that_is_chosen() -> None:
    for path in DASHBOARDS:
        names = [variable["name"] for variable in dashboard(path)["templating"]["list"]]
        assert names[:2] == ["datasource", "cluster"], path.stem
    assert_none(
        f"{question.where}: {node.name} of any cluster"
        for question in every_question()
        if not question.where.endswith("variable cluster")
        for node in promql.parse(question.asked()).walk()
        if node.kind == "selector" and ("cluster", "=~", ".*") not in node.matchers
    )


def test_every_metric_is_catalogued_or_recorded() -> None:
    def missing() -> Iterator[str]:
        for question in every_question():
            names = list(promql.metrics(promql.parse(question.asked())))
            if not names:
                yield f"{question.where}: {question.expr} reads no metric"
            yield from (f"{question.where}: there is no {name}" for name in names if not exists(name))

    assert_none(missing())


def test_a_rate_is_of_an_interval_that_follows_the_scrapes() -> None:
    assert_none(
        f"{question.where}: {question.expr}"
        for question in every_question()
        if re.search(r"\b(?:rate|irate|increase)\([^()]*\[(?!\$__rate_interval\])", question.expr)
    )


def test_a_dashboard_explains_itself_and_is_found_by_its_name() -> None:
    for path in DASHBOARDS:
        found = dashboard(path)
        assert (found["uid"], found["tags"], found["editable"]) == (path.stem, ["trainwarden"], False)
        assert found["schemaVersion"] == SCHEMA, path.stem
        assert found["description"].endswith("?"), path.stem
    titles = Counter(place for place, _ in every_panel())
    assert_none(f"{place}: a title of several panels" for place, count in titles.items() if count > 1)
    assert_none(
        f"{place}: expected a title, and a description that is a sentence"
        for place, panel in every_panel()
        if not panel["title"] or not panel["description"].endswith(".")
    )


def overlaps(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Return whether two places of the grid have a cell in common."""
    beside = one["x"] >= other["x"] + other["w"] or other["x"] >= one["x"] + one["w"]
    below = one["y"] >= other["y"] + other["h"] or other["y"] >= one["y"] + one["h"]
    return not (beside or below)


def test_a_panel_has_an_id_a_unit_a_place_and_no_data_source_of_its_own() -> None:
    def wrong() -> Iterator[str]:
        for path in DASHBOARDS:
            found = dashboard(path)["panels"]
            identities = Counter(panel["id"] for panel in found)
            yield from (f"{path.stem}: several panels have the id {id_}" for id_, n in identities.items() if n > 1)
            if path.read_text(encoding="utf-8").count('"uid": "${datasource}"') <= len(found):
                yield f"{path.stem}: panels without a data source"
            for one, other in combinations(found, 2):
                if overlaps(one["gridPos"], other["gridPos"]):
                    yield f"{path.stem}: {one['title']} lies on {other['title']}"
        for place, panel in every_panel():
            if any(each["datasource"] != SOURCE for each in (panel, *panel["targets"])):
                yield f"{place}: a data source of its own"
            if (unit := panel["fieldConfig"]["defaults"]["unit"]) not in UNITS:
                yield f"{place}: unit {unit}"
            if len({target["refId"] for target in panel["targets"]}) < len(panel["targets"]):
                yield f"{place}: two queries have one letter"
            if panel["gridPos"]["x"] + panel["gridPos"]["w"] > 24:
                yield f"{place}: it reaches beyond the grid"

    assert_none(wrong())


def test_a_series_has_a_name_that_tells_it_from_the_others() -> None:
    def nameless() -> Iterator[str]:
        for place, panel in every_panel():
            if panel["type"] == "table":
                if {target["format"] for target in panel["targets"]} != {"table"}:
                    yield f"{place}: a table of what is no table"
                continue
            for target in panel["targets"]:
                legend = target["legendFormat"]
                by = re.match(r"(?:max|min|sum|avg|count) by \(([\w, ]+)\)", target["expr"])
                # Of an aggregation that keeps labels at least one is named, or the series would all be called the same.
                named = set(re.findall(r"{{(\w+)}}", legend))
                if not legend or (by is not None and not named & set(by[1].split(", "))):
                    yield f"{place} {target['refId']}: called {legend!r}"

    assert_none(nameless())


def test_a_column_of_a_table_comes_from_one_of_its_queries() -> None:
    def strange() -> Iterator[str]:
        for place, panel in every_panel():
            if panel["type"] != "table":
                continue
            text = " ".join(target["expr"] for target in panel["targets"])
            (shown,) = [each["options"] for each in panel["transformations"] if each["id"] == "filterFieldsByName"]
            letters = {target["refId"] for target in panel["targets"]}
            # Of one query the value has no letter.
            values = {f"Value #{letter}" for letter in letters} if len(letters) > 1 else {"Value"}
            for name in shown["include"]["names"]:
                if name not in values if name.startswith("Value") else not re.search(rf"\b{name}\b", text):
                    yield f"{place}: column {name}"

    assert_none(strange())


def test_ended_runs_can_be_chosen_for_as_long_as_the_time_that_is_shown() -> None:
    """`refresh` 2 is: whenever the time range changes."""
    assert_none(
        f"{place}: refresh {variable['refresh']}, {variable['query']['query']}, {variable['datasource']}"
        for place, variable in variables()
        if variable["type"] == "query"
        if variable["refresh"] != 2
        or "[$__range]" not in variable["query"]["query"]
        or variable["datasource"] != SOURCE
    )


def taken(uid: str) -> set[str]:
    """Return the variables that a link to a dashboard can set; none where there is no such dashboard."""
    path = FOLDER / f"{uid}.json"
    return {variable["name"] for variable in dashboard(path)["templating"]["list"]} if path.exists() else set()


def test_a_link_leads_to_a_dashboard_or_runbook_that_exists() -> None:
    uids = {each.stem for each in DASHBOARDS}

    def astray() -> Iterator[str]:
        for path in DASHBOARDS:
            text = path.read_text(encoding="utf-8")
            linked = {link["url"] for link in dashboard(path)["links"]}
            for url in linked ^ {f"/d/{uid}" for uid in uids - {path.stem}}:
                yield f"{path.stem}: {url} is {'no dashboard' if url in linked else 'not linked'}"
            for uid, names in re.findall(r'"/d/([\w-]+)\?([^"]*)', text):
                for name in set(re.findall(r"var-(\w+)=", names)) - taken(uid):
                    yield f"{path.stem}: a link to {uid} sets {name}"
            for folder in re.findall(
                r'"https://github.com/trainwarden/trainwarden/blob/main/([\w/]+)/\$\{__value.raw\}.md"', text
            ):
                for name in NAMES:
                    if not (ROOT / folder / f"{name}.md").exists():
                        yield f"{path.stem}: a link to {folder}/{name}.md"

    assert_none(astray())


def links(panel: Mapping[str, Any]) -> list[str]:
    """Return where the cells of a table lead to, of our own dashboards."""
    properties = [each for override in panel["fieldConfig"]["overrides"] for each in override["properties"]]
    found = [link["url"] for each in properties if each["id"] == "links" for link in each["value"]]
    return [url for url in found if url.startswith("/d/")]


# The query of a table whose cells lead to the cluster of their row.
OF_ITS_CLUSTER = re.compile(
    r'label_replace\(label_join\((.+), "linked_cluster", "", "cluster"\),'
    r' "linked_cluster", "All", "linked_cluster", ""\)'
)


def test_a_link_of_a_table_leads_to_the_cluster_of_its_row() -> None:
    """Not to the one that is chosen, which may be all: a run of that name may be in two."""

    def elsewhere() -> Iterator[str]:
        for place, panel in every_panel():
            linked = links(panel)
            for url in linked:
                if "var-cluster=${__data.fields.linked_cluster:percentencode}&" not in url:
                    yield f"{place}: {url}"
            if not linked:
                continue
            (kept,) = (each["options"] for each in panel["transformations"] if each["id"] == "filterFieldsByName")
            if "linked_cluster" not in kept["include"]["names"]:
                yield f"{place}: it drops linked_cluster"
            for target in panel["targets"]:
                made = OF_ITS_CLUSTER.fullmatch(target["expr"])
                if made is None or not re.search(r"\b(?:by|on) \([\w, ]*\bcluster\b", made[1]):
                    yield f"{place} {target['refId']}: {target['expr']}"

    assert any(links(panel) for _, panel in every_panel())
    assert_none(elsewhere())


def test_every_variable_is_used_and_every_one_that_is_used_exists() -> None:
    def wrong() -> Iterator[str]:
        for path in DASHBOARDS:
            names = {variable["name"] for variable in dashboard(path)["templating"]["list"]} - {"datasource"}
            used = {name for question in questions(path) for name in re.findall(r"\$(\w+)", question.expr)}
            for name in {name for name in used if not name.startswith("__")} ^ names:
                yield f"{path.stem}: ${name} is {'not used' if name in names else 'no variable'}"
            yield from (f"{path.stem}: ${name} has no value here" for name in used if f"${name}" not in VALUES)

    assert_none(wrong())


def test_an_alert_links_to_a_dashboard_that_exists_and_takes_what_it_sets() -> None:
    def astray() -> Iterator[str]:
        for title, rule in TITLED_ALERTS:
            for link in rule["annotations"]["dashboard"].split("{{ else }}"):
                (uid,) = re.findall(r"^(?:{{ if [^}]+}})?/d/([\w-]+)", link) or [""]
                if not (FOLDER / f"{uid}.json").exists():
                    yield f"{title}: no dashboard for {link}"
                for name in set(re.findall(r"var-(\w+)=", link)) - taken(uid):
                    yield f"{title}: {uid} has no variable {name}"

    assert_none(astray())
