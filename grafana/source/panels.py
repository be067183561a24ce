"""Panels: what is shown, typed by Grafana's own models; how it looks comes from the style alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import common as layouts
from grafana_foundation_sdk.builders import dashboard as parts
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.source.style import BAD, CALM, LIMIT, PLAIN, STATES, Scale, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
FULL = 24
# The field of a table that has the cluster of its row, for links. It is there in each row, for Grafana leaves a field that is
# missing in the address as it is written: "All", which the variable takes, where the series have no cluster.
LINKED_CLUSTER = "linked_cluster"
OF_ROW = f"var-cluster=${{__data.fields.{LINKED_CLUSTER}:percentencode}}"
Panel = stat.Panel | table.Panel | timeseries.Panel | statetimeline.Panel


@dataclass(frozen=True)
class Query:
    """A query and the name of its series, in which `{{label}}` stands for a label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: a label, or the value of a query by its letter (`Value #A`); `link` is that of its values."""

    source: str
    title: str
    unit: Unit = Unit.NUMBER
    scale: Scale | None = None
    link: str = ""


@dataclass(frozen=True)
class Row:
    """A heading, and the panels under it."""

    title: str
    panels: Sequence[Panel] = field(default_factory=tuple)


def stats(
    title: str,
    description: str,
    *queries: Query,
    unit: Unit = Unit.NUMBER,
    scale: Scale = PLAIN,
    width: int = 4,
    height: int = 4,
    names: bool = False,
    none: str = "",
) -> Panel:
    """Return one number for each series, or its name alone."""
    panel = stat.Panel()
    panel.color_mode(common.BigValueColorMode.BACKGROUND)
    panel.graph_mode(common.BigValueGraphMode.NONE)
    panel.text_mode(common.BigValueTextMode.NAME if names else common.BigValueTextMode.AUTO)
    reduced = layouts.ReduceDataOptions()
    reduced.calcs(["lastNotNull"])
    panel.reduce_options(reduced)
    if names:
        panel.overrides(_coloured_states())
    _describe(panel, title, description, width, height)
    panel.unit(unit.value)
    panel.thresholds(_thresholds(scale))
    if none:
        panel.no_value(none)
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number, instant=names))
    return panel


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: Unit = Unit.NUMBER,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    bars: bool = False,
    scale: Scale | None = None,
    most: float | None = None,
    second: Mapping[str, Unit] | None = None,
) -> Panel:
    """Return lines over time.

    Args:
        title: of the panel.
        description: what it shows and what a person should see in it.
        queries: of the lines.
        unit: of the values.
        width: of 24.
        height: in units of Grafana.
        stacked: the lines are parts of a whole.
        bars: bars in place of lines, for counts of a time.
        scale: draws its numbers as dashed lines.
        most: the upper end of the axis.
        second: names of series with another unit, on an axis at the right.
    """
    panel = timeseries.Panel()
    panel.draw_style(common.GraphDrawStyle.BARS if bars else common.GraphDrawStyle.LINE)
    panel.line_width(1)
    panel.fill_opacity(60 if stacked or bars else 0)
    panel.show_points(common.VisibilityMode.NEVER)
    panel.span_nulls(False)
    if stacked:
        stacking = layouts.StackingConfig()
        stacking.mode(common.StackingMode.NORMAL)
        stacking.group("A")
        panel.stacking(stacking)
    legend = layouts.VizLegendOptions()
    legend.display_mode(common.LegendDisplayMode.LIST)
    legend.placement(common.LegendPlacement.BOTTOM)
    legend.show_legend(True)
    panel.legend(legend)
    tooltip = layouts.VizTooltipOptions()
    tooltip.mode(common.TooltipDisplayMode.MULTI)
    tooltip.sort(common.SortOrder.DESCENDING)
    panel.tooltip(tooltip)
    if scale is not None:
        panel.thresholds(_thresholds(scale))
        style = layouts.GraphThresholdsStyleConfig()
        style.mode(common.GraphTresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    if most is not None:
        panel.min(0)
        panel.max(most)
    limit = [
        dashboard.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
        dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": BAD}),
    ]
    panel.override_by_regexp(f".*({LIMIT}).*", limit)
    for name, other in (second or {}).items():
        right = [
            dashboard.DynamicConfigValue("unit", other.value),
            dashboard.DynamicConfigValue("custom.axisPlacement", "right"),
        ]
        panel.override_by_name(name, right)
    _describe(panel, title, description, width, height)
    panel.unit(unit.value)
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number))
    return panel


def bands(title: str, description: str, *queries: Query, width: int = FULL, height: int = 6) -> Panel:
    """Return one band over time for each series, filled while it has a value; the colour is that of its state."""
    panel = statetimeline.Panel()
    panel.merge_values(True)
    panel.show_value(common.VisibilityMode.NEVER)
    panel.fill_opacity(80)
    panel.line_width(0)
    panel.row_height(0.9)
    legend = layouts.VizLegendOptions()
    legend.display_mode(common.LegendDisplayMode.LIST)
    legend.placement(common.LegendPlacement.BOTTOM)
    legend.show_legend(False)
    panel.legend(legend)
    panel.overrides(_coloured_states())
    _describe(panel, title, description, width, height)
    panel.unit(Unit.NUMBER.value)
    panel.thresholds(_thresholds(PLAIN))
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number))
    return panel


def rows(
    title: str,
    description: str,
    columns: Sequence[Column],
    *queries: Query,
    width: int = FULL,
    height: int = 8,
    none: str = "none",
) -> Panel:
    """Return a table: what the queries give now, joined by their labels; only the named columns, in their order."""
    panel = table.Panel()
    panel.show_header(True)
    _describe(panel, title, description, width, height)
    panel.unit(Unit.NUMBER.value)
    panel.no_value(none)
    for column in columns:
        properties = [dashboard.DynamicConfigValue("unit", column.unit.value)]
        if column.scale is not None:
            properties += [
                dashboard.DynamicConfigValue("thresholds", _thresholds(column.scale).build().to_json()),
                dashboard.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
            ]
        if column.link:
            links = [{"title": "Open ${__value.text}", "url": column.link, "targetBlank": False}]
            properties.append(dashboard.DynamicConfigValue("links", links))
        panel.override_by_name(column.title, properties)
    names = {column.source: column.title for column in columns}
    if any(OF_ROW in column.link for column in columns):
        queries = tuple(_with_linked_cluster(query) for query in queries)
        names[LINKED_CLUSTER] = LINKED_CLUSTER
        hidden = [
            dashboard.DynamicConfigValue("custom.hidden", value=True),
            dashboard.DynamicConfigValue("custom.hideFrom.viz", value=True),  # from Grafana 12 on
        ]
        panel.override_by_name(LINKED_CLUSTER, hidden)
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    keep = {"names": list(names)}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="filterFieldsByName", options={"include": keep}))
    order = {source: number for number, source in enumerate(names)}
    organized = {"indexByName": order, "renameByName": names, "excludeByName": {}}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organized))
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number, instant=True, as_table=True))
    return panel


def _with_linked_cluster(query: Query) -> Query:
    expr = f'label_join({query.expr}, "{LINKED_CLUSTER}", "", "cluster")'
    return Query(f'label_replace({expr}, "{LINKED_CLUSTER}", "All", "{LINKED_CLUSTER}", "")', query.legend)


def _describe(panel: Panel, title: str, description: str, width: int, height: int) -> None:
    panel.title(title)
    panel.description(description)
    panel.datasource(SOURCE)
    panel.span(width)
    panel.height(height)


def _target(query: Query, number: int, *, instant: bool = False, as_table: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery()
    target.ref_id(chr(ord("A") + number))
    target.datasource(SOURCE)
    target.expr(" ".join(query.expr.split()))
    target.legend_format(query.legend)
    if instant:
        target.instant()
    else:
        target.range()
    target.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
    return target


def _thresholds(scale: Scale) -> parts.ThresholdsConfig:
    config = parts.ThresholdsConfig()
    config.mode(dashboard.ThresholdsMode.ABSOLUTE)
    steps = [dashboard.Threshold(color=scale.base, value=None)]
    config.steps([*steps, *(dashboard.Threshold(color=color, value=value) for value, color in scale.steps)])
    return config


def _coloured_states() -> list[Builder[dashboard.DashboardFieldConfigSourceOverrides]]:
    """Return the colour of each state; a series is named after it, or begins with it."""
    overrides: list[Builder[dashboard.DashboardFieldConfigSourceOverrides]] = []
    for state, color in {".*": CALM, **STATES}.items():
        override = parts.DashboardFieldConfigSourceOverrides()
        pattern = state if state == ".*" else f"{state}( .*)?"
        override.matcher(dashboard.MatcherConfig(id_val="byRegexp", options=pattern))
        colour = {"mode": "fixed", "fixedColor": color}
        override.properties([dashboard.DynamicConfigValue("color", colour)])
        overrides.append(override)
    return overrides
