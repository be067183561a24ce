"""Dashboards are current, keep the rules of good dashboards, and read what exists."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.rules import promql
from tests.rules.dashboards import DASHBOARDS, FOLDER, VALUES, dashboard, panels, questions
from tests.rules.rule_files import NAMES, ROOT, exists, of_alerts

of_dashboards = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
# Ids of Grafana's units that the dashboards may use, by what they mean.
UNITS = {
    "short", "percentunit", "percent", "s", "bytes", "Bps", "ops", "watt", "celsius", "hertz", "currencyUSD",
    "suffix: GPU h",
}  # fmt: skip
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's models need Python 3.11")
def test_the_files_are_what_the_source_makes(tmp_path: Path) -> None:
    from grafana.source.__main__ import main

    main([str(tmp_path)])
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS}, "make docs"


@of_dashboards
def test_every_query_is_about_the_cluster_that_is_chosen(path: Path) -> None:
    names = [variable["name"] for variable in dashboard(path)["templating"]["list"]]
    assert names[:2] == ["datasource", "cluster"]
    for question in questions(path):
        if question.where.endswith("variable cluster"):
            continue
        for node in promql.parse(question.asked()).walk():
            if node.kind == "selector":
                assert ("cluster", "=~", ".*") in node.matchers, question


@of_dashboards
def test_every_metric_is_catalogued_or_recorded(path: Path) -> None:
    for question in questions(path):
        names = list(promql.metrics(promql.parse(question.asked())))
        assert names, question
        assert [name for name in names if not exists(name)] == [], question


@of_dashboards
def test_a_rate_is_of_an_interval_that_follows_the_scrapes(path: Path) -> None:
    for question in questions(path):
        assert not re.search(r"\b(?:rate|irate|increase)\([^()]*\[(?!\$__rate_interval\])", question.expr), question


@of_dashboards
def test_a_dashboard_explains_itself_and_is_found_by_its_name(path: Path) -> None:
    found = dashboard(path)
    assert found["uid"] == path.stem
    assert found["description"].endswith("?")
    assert found["tags"] == ["trainwarden"]
    assert found["editable"] is False
    titles = Counter(panel["title"] for panel in panels(found))
    assert [title for title, count in titles.items() if count > 1] == []
    for panel in panels(found):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]


@of_dashboards
def test_a_panel_has_an_id_a_unit_a_place_and_no_data_source_of_its_own(path: Path) -> None:
    found = dashboard(path)
    identities = [panel["id"] for panel in found["panels"]]
    assert len(set(identities)) == len(identities)
    assert path.read_text(encoding="utf-8").count('"uid": "${datasource}"') > len(identities)
    for panel in panels(found):
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
    areas = [(each["gridPos"], each["title"]) for each in found["panels"]]
    for number, (one, title) in enumerate(areas):
        for other, its in areas[:number]:
            beside = one["x"] >= other["x"] + other["w"] or other["x"] >= one["x"] + one["w"]
            below = one["y"] >= other["y"] + other["h"] or other["y"] >= one["y"] + one["h"]
            assert beside or below, f"{title} lies on {its}"


@of_dashboards
def test_a_series_has_a_name_that_tells_it_from_the_others(path: Path) -> None:
    for panel in panels(dashboard(path)):
        if panel["type"] == "table":
            assert {target["format"] for target in panel["targets"]} == {"table"}
            continue
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]
            by = re.match(r"(?:max|min|sum|avg|count) by \(([\w, ]+)\)", target["expr"])
            # Of an aggregation that keeps labels at least one is named, or the series would all be called the same.
            names = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert by is None or names & set(by[1].split(", ")), (panel["title"], target["legendFormat"])


@of_dashboards
def test_a_column_of_a_table_comes_from_one_of_its_queries(path: Path) -> None:
    for panel in panels(dashboard(path)):
        if panel["type"] != "table":
            continue
        text = " ".join(target["expr"] for target in panel["targets"])
        (shown,) = [each["options"] for each in panel["transformations"] if each["id"] == "filterFieldsByName"]
        letters = {target["refId"] for target in panel["targets"]}
        for name in shown["include"]["names"]:
            value = re.fullmatch(r"Value(?: #(\w))?", name)
            if value:
                assert (value[1] is None) == (len(letters) == 1), panel["title"]
                assert value[1] is None or value[1] in letters, panel["title"]
            else:
                assert re.search(rf"\b{name}\b", text), f"{panel['title']}: {name}"


@of_dashboards
def test_ended_runs_can_be_chosen_for_as_long_as_the_time_that_is_shown(path: Path) -> None:
    for variable in dashboard(path)["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["refresh"] == 2, "2 is: whenever the time range changes"
            assert "[$__range]" in variable["query"]["query"]
            assert variable["datasource"] == SOURCE


@of_dashboards
def test_a_dashboard_has_a_schema_that_a_later_grafana_migrates(path: Path) -> None:
    assert dashboard(path)["schemaVersion"] == 38, "that of Grafana 10.0"


@of_dashboards
def test_a_link_leads_to_a_dashboard_or_runbook_that_exists(path: Path) -> None:
    uids = {each.stem for each in DASHBOARDS}
    text = path.read_text(encoding="utf-8")
    assert {link["url"] for link in dashboard(path)["links"]} == {f"/d/{uid}" for uid in uids - {path.stem}}
    for uid, names in re.findall(r'"/d/([\w-]+)\?([^"]*)', text):
        taken = {variable["name"] for variable in dashboard(FOLDER / f"{uid}.json")["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", names)) <= taken
    for folder in re.findall(
        r'"https://github.com/trainwarden/trainwarden/blob/main/([\w/]+)/\$\{__value.raw\}.md"', text
    ):
        assert all((ROOT / folder / f"{name}.md").exists() for name in NAMES)


@of_dashboards
def test_a_link_of_a_table_leads_to_the_cluster_of_its_row(path: Path) -> None:
    """Not to the one that is chosen, which may be all: a run of that name may be in two."""
    for panel in panels(dashboard(path)):
        properties = [each for override in panel["fieldConfig"]["overrides"] for each in override["properties"]]
        links = [link["url"] for each in properties if each["id"] == "links" for link in each["value"]]
        linked = [url for url in links if url.startswith("/d/")]
        assert all("var-cluster=${__data.fields.linked_cluster:percentencode}&" in url for url in linked), panel[
            "title"
        ]
        if not linked:
            continue
        (kept,) = (each["options"] for each in panel["transformations"] if each["id"] == "filterFieldsByName")
        assert "linked_cluster" in kept["include"]["names"]
        for target in panel["targets"]:
            made = re.fullmatch(
                r'label_replace\(label_join\((.+), "linked_cluster", "", "cluster"\),'
                r' "linked_cluster", "All", "linked_cluster", ""\)',
                target["expr"],
            )
            assert made, target["expr"]
            assert re.search(r"\b(?:by|on) \([\w, ]*\bcluster\b", made[1]), target["expr"]


@of_dashboards
def test_every_variable_is_used_and_every_one_that_is_used_exists(path: Path) -> None:
    names = {variable["name"] for variable in dashboard(path)["templating"]["list"]}
    used = {name for question in questions(path) for name in re.findall(r"\$(\w+)", question.expr)}
    assert {name for name in used if not name.startswith("__")} == names - {"datasource"}
    assert {f"${name}" for name in used} <= VALUES.keys()


@of_alerts
def test_an_alert_links_to_a_dashboard_that_exists_and_takes_what_it_sets(rule: dict[str, Any]) -> None:
    for link in rule["annotations"]["dashboard"].split("{{ else }}"):
        (uid,) = re.findall(r"^(?:{{ if [^}]+}})?/d/([\w-]+)", link)
        found = json.loads((FOLDER / f"{uid}.json").read_text(encoding="utf-8"))
        assert set(re.findall(r"var-(\w+)=", link)) <= {variable["name"] for variable in found["templating"]["list"]}
