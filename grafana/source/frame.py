"""The frame of a dashboard: variables, annotations, links, and where its panels stand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import dashboard as parts
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from grafana.source.panels import SOURCE, Row
from grafana.source.style import CALM, WARN

if TYPE_CHECKING:
    from collections.abc import Sequence

# Grafana 10's: later ones migrate it when they load it.
SCHEMA = 38
TAG = "trainwarden"
_TITLES = {
    "train-fleet": "Fleet",
    "train-run": "Run",
    "train-node": "Node",
    "train-remediation": "Remediation",
    "train-finetuning": "Fine-tuning",
}


def variable(
    name: str, label: str, expr: str, by: str, *, every: bool = False, several: bool = False, hidden: bool = False
) -> parts.QueryVariable:
    """Return a variable with the values that a label had in the time that is shown, so that what has ended is there.

    Args:
        name: as `$name`.
        label: as people see it.
        expr: gives the series, over `$__range`.
        by: the label.
        every: "All" can be chosen, and is at first.
        several: several values can be chosen.
        hidden: it is not shown.
    """
    made = parts.QueryVariable(name)
    made.label(label)
    made.datasource(SOURCE)
    made.query({"refId": name, "query": f"query_result({' '.join(expr.split())})"})
    made.regex(f'/{by}="([^"]+)"/')
    made.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    made.multi(several)
    made.include_all(every)
    if every:
        if not several:  # also where the label is absent, as cluster is where there is one
            made.all_value(".*")
        made.current(dashboard.VariableOption(selected=True, text="All", value="$__all"))
    if hidden:
        made.hide(dashboard.VariableHide.HIDE_VARIABLE)
    return made


def annotation(
    name: str, expr: str, title: str, *, color: str, text: str = "", tags: str = "", shown: bool = True
) -> dict[str, Any]:
    """Return marks on all graphs, at the times at which `expr` has a value; a label is `{{label}}`."""
    made = parts.AnnotationQuery()
    made.name(name)
    made.datasource(SOURCE)
    made.enable(shown)
    made.icon_color(color)
    made.expr(" ".join(expr.split()))
    # The models lack what Prometheus' own editor writes beside the expression.
    return {**_plain(made.build()), "titleFormat": title, "textFormat": text, "tagKeys": tags, "step": "15s"}


def cluster() -> parts.QueryVariable:
    """Return the variable of the cluster, which all others follow."""
    expr = "max by (cluster) (max_over_time(training_run_info[$__range])) or max by (cluster) (max_over_time(up[$__range]))"
    return variable("cluster", "Cluster", expr, "cluster", every=True)


def alerts(matchers: str) -> dict[str, Any]:
    """Return the annotation of what fires; a second evaluation of the same alert lengthens its mark."""
    expr = f'max by (alertname, severity, run_id, node) (ALERTS{{alertstate="firing",severity!="none",{matchers}}})'
    return annotation("Alerts", expr, "{{alertname}}", color=WARN, text="{{run_id}} {{node}}", tags="severity")


def decisions(matchers: str) -> dict[str, Any]:
    """Return the annotation of the remediator's incidents, as long as one is open."""
    expr = f"""
        max by (run_id, failure_mode, state) (trainwarden_remediator_incident_timestamp_seconds{{{matchers}}})
    """
    return annotation("Decisions", expr, "remediation: {{state}}", color=CALM, text="{{run_id}}", tags="failure_mode")


def board(
    uid: str,
    title: str,
    question: str,
    variables: Sequence[parts.QueryVariable],
    annotations: Sequence[dict[str, Any]],
    rows: Sequence[Row],
    *,
    refresh: str = "30s",
    since: str = "now-6h",
) -> str:
    """Return the dashboard as JSON text.

    Args:
        uid: the name of its file and of its address.
        title: what people see.
        question: that it answers.
        variables: after the data source.
        annotations: the marks on its graphs.
        rows: its panels, from above.
        refresh: how often it is drawn again.
        since: the beginning of what is shown at first.
    """
    made = parts.Dashboard(title)
    made.uid(uid)
    made.description(question)
    made.tags([TAG])
    made.readonly()
    made.timezone("browser")
    made.refresh(refresh)
    made.time(since, "now")
    made.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    source = parts.DatasourceVariable("datasource")
    source.label("Data source")
    source.type("prometheus")
    made.with_variable(source)
    for each in variables:
        made.with_variable(each)
    for other, name in _TITLES.items():
        if other != uid:
            link = parts.DashboardLink(name)
            link.type(dashboard.DashboardLinkType.LINK)
            link.url(f"/d/{other}")
            link.include_vars(True)
            link.keep_time(True)
            made.link(link)
    for row in rows:
        made.with_row(parts.Row(row.title))
        for panel in row.panels:
            made.with_panel(panel)
    document = _plain(made.build())
    document["schemaVersion"] = SCHEMA
    document["version"] = 1
    document["annotations"] = {"list": list(annotations)}
    # The models of Grafana 10.1 have both, those of later ones neither.
    del document["style"]
    for each in document["templating"]["list"]:
        del each["id"]
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(made: object) -> dict[str, Any]:
    """Return what a builder has made as JSON values."""
    document: dict[str, Any] = json.loads(json.dumps(made, cls=JSONEncoder))
    return document
