"""Dashboards ask for what exists, in a language that Prometheus understands."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules import promql
from tests.rules.rule_files import RECORDINGS, ROOT, of_alerts
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.docs import METRICS

DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$run": "r1", "$cluster": "prod"}


def dashboard(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def expressions(path: Path) -> Iterator[str]:
    found = dashboard(path)
    asked = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    asked += [annotation["expr"] for annotation in found["annotations"]["list"]]
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            asked.append(variable["query"]["query"].removeprefix("query_result(").removesuffix(")"))
    for expression in asked:
        yield re.sub(r"\$\w+", lambda match: VARIABLES[match[0]], expression)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_is_about_the_cluster_that_is_chosen(path: Path) -> None:
    names = [variable["name"] for variable in dashboard(path)["templating"]["list"]]
    assert names.index("cluster") < names.index("run")
    for expression in expressions(path):
        for node in promql.parse(expression).walk():
            if node.kind == "selector" and node.name != "training_run_info":
                assert ("cluster", "=~", "prod") in node.matchers, expression


def known() -> set[str]:
    return {*METRICS, *RECORDINGS, "ALERTS"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_is_catalogued_or_recorded(path: Path) -> None:
    for expression in expressions(path):
        names = set(re.findall(r"\b(?:training_|trainwarden_|run:|run_rank:|ALERTS)[\w:]*", expression))
        assert names, expression
        assert names <= known(), expression


@pytest.mark.tools
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_expression_is_promql(tools: Tools, tmp_path: Path, path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions(path))]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": path.stem, "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([tools.promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_explains_itself_and_is_found_by_its_name(path: Path) -> None:
    found = dashboard(path)
    assert found["uid"] == path.stem
    assert found["editable"] is False
    identities = [panel["id"] for panel in found["panels"]]
    assert len(set(identities)) == len(identities)
    for panel in found["panels"]:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@of_alerts
def test_an_alert_links_to_a_dashboard_that_exists_and_takes_what_it_sets(rule: dict[str, Any]) -> None:
    link = rule["annotations"]["dashboard"]
    (uid,) = re.findall(r"^/d/([\w-]+)", link)
    found = dashboard(ROOT / f"grafana/dashboards/{uid}.json")
    assert set(re.findall(r"var-(\w+)=", link)) <= {variable["name"] for variable in found["templating"]["list"]}
