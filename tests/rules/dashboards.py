"""The dashboards as tests read them: panels, queries, and the queries with values in place of variables."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rules.rule_files import ROOT

FOLDER = ROOT / "grafana/dashboards"
DASHBOARDS = sorted(FOLDER.glob("*.json"))
# What Grafana puts in place of a variable: of one with several values an expression that matches them.
VALUES = {
    "$__rate_interval": "1m",
    "$__range_s": "600",
    "$__range": "10m",
    "$cluster": ".*",
    "$run": "r1",
    "$rank": "(0|1|2|3)",
    "$node": "n2",
    "$instance": "n2:9745",
    "$model": ".*",
    "$job": ".*",
}


@dataclass(frozen=True)
class Question:
    """An expression of a dashboard, and where it stands."""

    where: str
    expr: str

    def asked(self, values: Mapping[str, str] = VALUES) -> str:
        """Return it as Grafana sends it. Raises KeyError for a variable without a value."""
        return re.sub(r"\$\w+", lambda match: values[match[0]], self.expr)


@functools.cache
def dashboard(path: Path) -> dict[str, Any]:
    """Return a dashboard, which is read once and not to be changed."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def panels(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all panels but the headings of rows."""
    return [each for each in found["panels"] if each["type"] != "row"]


def every_panel() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the panels of all dashboards, each with its place."""
    for path in DASHBOARDS:
        for panel in panels(dashboard(path)):
            yield f"{path.stem}: {panel['title']}", panel


def every_target() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the queries of the panels of all dashboards, each with its place."""
    for place, panel in every_panel():
        for target in panel["targets"]:
            yield f"{place} {target['refId']}", target


def every_question() -> Iterator[Question]:
    """Yield the expressions of all dashboards."""
    for path in DASHBOARDS:
        yield from questions(path)


def variables() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variables of all dashboards, each with its place."""
    for path in DASHBOARDS:
        for variable in dashboard(path)["templating"]["list"]:
            yield f"{path.stem}: variable {variable['name']}", variable


def questions(path: Path) -> Iterator[Question]:
    """Yield the expressions of panels, annotations and variables."""
    found = dashboard(path)
    for panel in panels(found):
        for target in panel["targets"]:
            yield Question(f"{path.stem}: {panel['title']} {target['refId']}", target["expr"])
    for annotation in found["annotations"]["list"]:
        yield Question(f"{path.stem}: annotation {annotation['name']}", annotation["expr"])
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"].removeprefix("query_result(").removesuffix(")")
            yield Question(f"{path.stem}: variable {variable['name']}", query)
