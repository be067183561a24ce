"""Dashboards agree with the models of several versions of Grafana; what is broken in one is seen."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.offenders import assert_none
from tests.rules.dashboards import DASHBOARDS, FOLDER, dashboard, every_panel, panels
from tests.rules.grafana_models import VERSIONS, models

# Where our dashboards differ from the models, and why that is right.
DIFFERENCES = {
    r"annotations\.list\[\d+\]\.(?:step|tagKeys|textFormat|titleFormat) is unknown": (
        "the models have what all annotations have; these are what the editor of Prometheus' annotations writes"
    ),
    r".*\.fieldConfig\.overrides links\[\d+\]\.\w+ is missing": (
        "a link of a value has title, url and targetBlank; the models give it the type of a link of the dashboard"
    ),
    r"panels\[\d+\]\.fieldConfig\.overrides custom\.hideFrom\.viz is unknown": (
        "tables of Grafana 12 hide a column by this; earlier ones by custom.hidden, which stands beside it"
    ),
    r"panels\[\d+\]\.options\.(?:wideLayout|showPercentChange|percentChangeColorMode) is missing": (
        "later than 10.1: Grafana takes the default of the type of panel for what is not set"
    ),
    r"(?:style|templating\.list\[\d+\]\.id) is missing": "in the models of 10.1 alone; neither changes what is shown",
}  # fmt: skip
# By packages/grafana-data/src/transformations/transformers/ids.ts of Grafana; there since before version 8.
TRANSFORMATIONS = {"merge", "organize", "filterFieldsByName"}


def violations(version: str, document: dict[str, Any]) -> list[str]:
    found = models(version).violations(document)
    return [each for each in found if not any(re.fullmatch(pattern, each) for pattern in DIFFERENCES)]


def test_the_dashboards_agree_with_the_models() -> None:
    assert_none(
        f"{path.stem}, Grafana {version}: {each}"
        for version in VERSIONS
        for path in DASHBOARDS
        for each in violations(version, dashboard(path))
    )


def test_transformations_are_those_of_every_version() -> None:
    assert_none(
        f"{place}: {each['id']}"
        for place, panel in every_panel()
        for each in panel["transformations"]
        if each["id"] not in TRANSFORMATIONS
    )


def test_every_difference_is_there() -> None:
    found = [
        each for version in VERSIONS for path in DASHBOARDS for each in models(version).violations(dashboard(path))
    ]
    assert [pattern for pattern in DIFFERENCES if not any(re.fullmatch(pattern, each) for each in found)] == []


def first(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first panel of this type."""
    found: dict[str, Any] = next(panel for panel in panels(document) if panel["type"] == kind)
    return found


def set_in(kind: str, *keys: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    """Return what sets a value of the first panel of this type; `kind` may be "" for the dashboard itself."""

    def change(document: dict[str, Any]) -> None:
        place: Any = first(document, kind) if kind else document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


def without(kind: str, key: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        del (first(document, kind) if kind else document)[key]

    return change


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "panel type 5": (set_in("stat", "type", to=5), "type: 5"),
    "panel type nobody has": (set_in("stat", "type", to="stats"), "type: 'stats'"),
    "unknown key of the dashboard": (set_in("", "panel", to=[]), "panel is unknown"),
    "no templating": (without("", "templating"), "templating is missing"),
    "no type": (without("stat", "type"), "type is missing"),
    "tooltip as text": (set_in("", "graphTooltip", to="1"), "graphTooltip: '1'"),
    "tooltip of no kind": (set_in("", "graphTooltip", to=7), "graphTooltip: 7"),
    "tags as text": (set_in("", "tags", to="trainwarden"), "tags: 'trainwarden', expected array"),
    "editable as text": (set_in("", "editable", to="no"), "editable: 'no', expected boolean"),
    "schema version as text": (set_in("", "schemaVersion", to="38"), "schemaVersion: '38'"),
    "variable type": (set_in("", "templating", "list", 1, "type", to="qery"), "type: 'qery'"),
    "variable sort": (set_in("", "templating", "list", 1, "sort", to="banana"), "sort: 'banana'"),
    "variable refresh": (set_in("", "templating", "list", 1, "refresh", to=9), "refresh: 9"),
    "unknown key of a variable": (set_in("", "templating", "list", 1, "values", to=[]), "values is unknown"),
    "annotation without colour": (set_in("", "annotations", "list", 0, "iconColor", to=None), "iconColor: None"),
    "link type": (set_in("", "links", 0, "type", to="dash"), "links[0].type: 'dash'"),
    "unknown key of a panel": (set_in("timeseries", "legend", to={}), "legend is unknown"),
    "width as text": (set_in("timeseries", "gridPos", "w", to="12"), "gridPos.w: '12'"),
    "unit": (set_in("timeseries", "fieldConfig", "defaults", "unit", to="seconds"), "unit: 'seconds'"),
    "unit as number": (set_in("timeseries", "fieldConfig", "defaults", "unit", to=5), "unit: 5"),
    "threshold mode": (
        set_in("stat", "fieldConfig", "defaults", "thresholds", "mode", to="relative"),
        "thresholds.mode: 'relative'",
    ),
    "threshold as text": (
        set_in("stat", "fieldConfig", "defaults", "thresholds", "steps", 0, "value", to="1"),
        "steps[0].value: '1'",
    ),
    "unknown default": (set_in("stat", "fieldConfig", "defaults", "colour", to={}), "colour is unknown"),
    "draw style": (
        set_in("timeseries", "fieldConfig", "defaults", "custom", "drawStyle", to="dots"),
        "drawStyle: 'dots'",
    ),
    "unknown custom option": (
        set_in("timeseries", "fieldConfig", "defaults", "custom", "width", to=1),
        "custom.width is unknown",
    ),
    "custom option of another panel": (
        set_in("state-timeline", "fieldConfig", "defaults", "custom", "drawStyle", to="line"),
        "custom.drawStyle is unknown",
    ),
    "override of nothing": (
        set_in("table", "fieldConfig", "overrides", 0, "properties", 0, "id", to="units"),
        "overrides units is unknown",
    ),
    "override's value": (
        set_in("table", "fieldConfig", "overrides", 0, "properties", 0, to={"id": "decimals", "value": "two"}),
        "overrides decimals: 'two'",
    ),
    "legend": (set_in("timeseries", "options", "legend", "displayMode", to="lines"), "displayMode: 'lines'"),
    "legend's place": (set_in("timeseries", "options", "legend", "placement", to=None), "placement: None"),
    "tooltip's sort": (set_in("timeseries", "options", "tooltip", "sort", to="banana"), "sort: 'banana'"),
    "calculations as text": (set_in("stat", "options", "reduceOptions", "calcs", to="last"), "calcs: 'last'"),
    "colour mode": (set_in("stat", "options", "colorMode", to="bright"), "colorMode: 'bright'"),
    "unknown option": (set_in("state-timeline", "options", "merge", to=True), "options.merge is unknown"),
    "cell height": (set_in("table", "options", "cellHeight", to="tiny"), "cellHeight: 'tiny'"),
    "target without query": (set_in("stat", "targets", 0, to={"refId": "A"}), "expr is missing"),
    "target's format": (set_in("table", "targets", 0, "format", to="tabular"), "format: 'tabular'"),
    "unknown key of a target": (set_in("stat", "targets", 0, "legend", to="x"), "legend is unknown"),
    "instant as text": (set_in("stat", "targets", 0, "instant", to="yes"), "instant: 'yes'"),
    "row as panel": (set_in("", "panels", 0, "collapsed", to="no"), "collapsed: 'no'"),
}


@pytest.mark.nightly
def test_what_is_broken_is_seen() -> None:
    def unseen() -> Iterator[str]:
        for name, (change, expected) in BROKEN.items():
            document = copy.deepcopy(dashboard(FOLDER / "train-run.json"))
            change(document)
            for version in VERSIONS:
                if not any(expected in each for each in violations(version, document)):
                    yield f"{name}: Grafana {version} is not said to refuse it"

    assert_none(unseen())
