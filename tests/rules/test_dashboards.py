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

from tests.rules.promtool import ROOT
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.docs import METRICS

DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$run": "r1"}


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


def known() -> set[str]:
    recorded = {
        rule["record"]
        for path in (ROOT / "rules").glob("*/*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    return {*METRICS, *recorded, "ALERTS"}


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


def test_the_alerts_link_to_a_dashboard_that_exists_and_takes_the_run() -> None:
    rules = (ROOT / "rules/alerts/runs.yml").read_text(encoding="utf-8")
    (link,) = set(re.findall(r"dashboard: /d/([\w-]+)\?var-(\w+)=", rules))
    found = dashboard(ROOT / f"grafana/dashboards/{link[0]}.json")
    assert link[1] in {variable["name"] for variable in found["templating"]["list"]}
