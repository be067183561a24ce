"""Fleet: all runs and nodes of the clusters; what works, what is lost, and where nothing is seen."""

from __future__ import annotations

from grafana.source.frame import alerts, board, cluster, decisions
from grafana.source.panels import FULL, OF_ROW, Column, Query, Row, bands, graph, rows, stats
from grafana.source.style import EFFICIENCY, NONE_IS_BETTER, NONE_IS_GOOD, RUNBOOKS, Unit

C = 'cluster=~"$cluster"'
TO_RUN = f"/d/train-run?{OF_ROW}&var-run=${{__value.raw:percentencode}}&${{__url_time_range}}"
TO_NODE = f"/d/train-node?{OF_ROW}&var-node=${{__value.raw:percentencode}}&${{__url_time_range}}"
TO_RUNBOOK = f"{RUNBOOKS}/${{__value.raw}}.md"

FLEET = board(
    "train-fleet",
    "Training fleet",
    "Which runs work, what is lost, and what is not seen?",
    [cluster()],
    [alerts(C + ',severity="critical"'), decisions(C)],
    [
        Row(
            "Now",
            [
                stats(
                    "Running",
                    "Runs whose record says that they run; whether they move is in the table.",
                    Query(f'count(run:training_run_state:current{{state="running",{C}}})', "running"),
                ),
                stats(
                    "Failed",
                    "Runs that have failed and are still shown: for a day after their end.",
                    Query(f'count(run:training_run_state:current{{state="failed",{C}}})', "failed"),
                    scale=NONE_IS_GOOD,
                    none="0",
                ),
                stats(
                    "Critical alerts",
                    "What fires and needs a person, or the remediator, now.",
                    Query(f'count(ALERTS{{alertstate="firing",severity="critical",{C}}})', "critical"),
                    scale=NONE_IS_GOOD,
                    none="0",
                ),
                stats(
                    "Goodput",
                    "GPUs that make progress, as a share of those that runs hold.",
                    Query(
                        f"sum(cluster:training_gpus_productive:sum{{{C}}}) / sum(cluster:training_gpus:sum{{{C}}})",
                        "goodput",
                    ),
                    unit=Unit.RATIO,
                    scale=EFFICIENCY,
                ),
                stats(
                    "Lost per hour",
                    "Price of the GPUs that are held and make no progress. The price of a GPU hour is in rules/values.yml.",
                    Query(f"sum(cluster:training_cost_lost_dollars:per_hour{{{C}}})", "lost"),
                    unit=Unit.DOLLARS,
                ),
                stats(
                    "Exporters that do not answer",
                    "Nodes on which nothing is seen: what happens there raises no alert but this.",
                    Query(
                        f"sum(cluster:trainwarden_exporters:count{{{C}}})"
                        f" - (sum(cluster:trainwarden_exporters_up:count{{{C}}}) or vector(0))",
                        "down",
                    ),
                    scale=NONE_IS_GOOD,
                ),
            ],
        ),
        Row(
            "Runs",
            [
                rows(
                    "Runs",
                    "All runs that are shown now. A run that stands still has used up its budget at 100 %.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("cluster", "Cluster"),
                        Column("state", "State"),
                        Column("Value #B", "Complete", Unit.RATIO),
                        Column("Value #C", "Stall budget used", Unit.RATIO),
                        Column("Value #D", "Goodput", Unit.RATIO, EFFICIENCY),
                        Column("Value #E", "GPUs"),
                        Column("Value #F", "GPU hours lost"),
                        Column("Value #G", "Cost", Unit.DOLLARS),
                        Column("Value #H", "Alerts", scale=NONE_IS_BETTER),
                    ],
                    Query(f"max by (cluster, run_id, state) (run:training_run_state:current{{{C}}})"),
                    Query(f"max by (cluster, run_id) (run:training_complete:ratio{{{C}}})"),
                    Query(
                        f"max by (cluster, run_id) (run:training_standstill_seconds:current{{{C}}}"
                        f" / run:training_stall_threshold_seconds:current{{{C}}})"
                    ),
                    Query(f"max by (cluster, run_id) (run:training_goodput:ratio{{{C}}})"),
                    Query(f"max by (cluster, run_id) (run:training_gpus:last{{{C}}})"),
                    Query(f"max by (cluster, run_id) (run:training_gpu_hours_lost:sum{{{C}}})"),
                    Query(f"max by (cluster, run_id) (run:training_cost_dollars:sum{{{C}}})"),
                    Query(
                        f'count by (cluster, run_id) (ALERTS{{alertstate="firing",severity=~"critical|warning",'
                        f'run_id!="",{C}}})'
                    ),
                    height=9,
                ),
                graph(
                    "Runs by state",
                    "Runs that are shown. Failed ones that pile up are nobody's.",
                    Query(f"count by (state) (run:training_run_state:current{{{C}}})", "{{state}}"),
                    stacked=True,
                ),
                graph(
                    "Progress of the runs",
                    "Step of the planned steps; a flat line is a run that stands still.",
                    Query(f"max by (cluster, run_id) (run:training_complete:ratio{{{C}}})", "{{run_id}}"),
                    unit=Unit.RATIO,
                    most=1,
                ),
            ],
        ),
        Row(
            "Goodput and cost",
            [
                graph(
                    "What the GPUs do",
                    "GPUs that runs hold, by what their run does: productive is the part that is paid for.",
                    Query(f"sum by (use) (cluster:training_gpus_by_use:sum{{{C}}})", "{{use}}"),
                    stacked=True,
                ),
                graph(
                    "Goodput and ETTR",
                    "Goodput leaves out the time between attempts; ETTR, the effective training time, includes it.",
                    Query(
                        f"sum(cluster:training_gpus_productive:sum{{{C}}}) / sum(cluster:training_gpus:sum{{{C}}})",
                        "goodput of the GPUs now",
                    ),
                    Query(
                        f"sum(run:training_productive_seconds:sum{{{C}}}) / sum(run:training_elapsed_seconds:sum{{{C}}}"
                        f" + run:training_down_seconds:sum{{{C}}})",
                        "ETTR of the runs, mean",
                    ),
                    unit=Unit.RATIO,
                    most=1,
                ),
                stats(
                    "GPU hours lost in this time",
                    "Hours of GPUs that were held and made no progress, over the time that is shown.",
                    Query(
                        f"sum(avg_over_time(cluster:training_gpus:sum{{{C}}}[$__range])"
                        f" - avg_over_time(cluster:training_gpus_productive:sum{{{C}}}[$__range])) * $__range_s / 3600",
                        "lost",
                    ),
                    unit=Unit.GPU_HOURS,
                    width=6,
                ),
                stats(
                    "Cost in this time",
                    "Of all GPUs that runs held, over the time that is shown.",
                    Query(
                        f"sum(avg_over_time(cluster:training_cost_dollars:per_hour{{{C}}}[$__range])) * $__range_s / 3600",
                        "cost",
                    ),
                    unit=Unit.DOLLARS,
                    width=6,
                ),
                stats(
                    "A restart of all runs would lose",
                    "GPU hours since the last checkpoints, together: what a reboot of the fleet costs now.",
                    Query(f"sum(run:training_restart_gpu_hours:current{{{C}}})", "lost"),
                    unit=Unit.GPU_HOURS,
                    width=6,
                ),
                stats(
                    "Steps done twice",
                    "By all runs that are shown, since each began: done again after restarts.",
                    Query(f"sum(run:training_lost_steps:sum{{{C}}})", "steps"),
                    width=6,
                ),
            ],
        ),
        Row(
            "Incidents",
            [
                bands(
                    "Critical alerts and warnings",
                    "What fired, and where. The runbook of each is linked in the table below.",
                    Query(
                        f'max by (severity, alertname, run_id, node) (ALERTS{{alertstate="firing",'
                        f'severity=~"critical|warning",{C}}})',
                        "{{severity}} {{alertname}} {{run_id}} {{node}}",
                    ),
                    height=8,
                ),
                rows(
                    "Firing now",
                    "Each alert has a runbook: what it means, how to check it, what to do.",
                    [
                        Column("alertname", "Alert and runbook", link=TO_RUNBOOK),
                        Column("severity", "Severity"),
                        Column("cluster", "Cluster"),
                        Column("run_id", "Run", link=TO_RUN),
                        Column("node", "Node", link=TO_NODE),
                        Column("remediate", "Restarts the run"),
                    ],
                    Query(
                        f"max by (alertname, severity, cluster, run_id, node, remediate)"
                        f' (ALERTS{{alertstate="firing",severity!="none",{C}}})'
                    ),
                    width=16,
                ),
                graph(
                    "Incidents of the remediator",
                    "On record, by state. In doubt is one whose call may or may not have taken effect.",
                    Query(f"sum by (state) (trainwarden_remediator_incidents{{{C}}}) > 0", "{{state}}"),
                    width=8,
                ),
            ],
        ),
        Row(
            "Who is blind",
            [
                rows(
                    "Targets that do not answer",
                    "Exporters and remediators that Prometheus cannot scrape.",
                    [Column("job", "Job"), Column("instance", "Target"), Column("cluster", "Cluster")],
                    Query(f'max by (job, instance, cluster) (up{{job=~"trainwarden-.*",{C}}} == 0)'),
                    width=8,
                ),
                rows(
                    "Collectors that fail or hang",
                    "The exporter answers, but this part of the node is not seen; `call` is what hangs.",
                    [
                        Column("node", "Node", link=TO_NODE),
                        Column("collector", "Collector"),
                        Column("device", "Device"),
                        Column("call", "Hangs in"),
                    ],
                    Query(
                        f"""
                        (
                          max by (cluster, instance, collector, device, call) (trainwarden_collector_stuck{{{C}}})
                          or on (cluster, instance, collector)
                          1 + max by (cluster, instance, collector) (trainwarden_collector_success{{{C}}} == 0)
                        )
                        * on (cluster, instance) group_left (node) instance:training_node:name{{{C}}}
                        """
                    ),
                    width=8,
                ),
                rows(
                    "Runs and sources that nobody sees",
                    "Runs whose record is not read any more, and what the remediator cannot read.",
                    [Column("run_id", "Run", link=TO_RUN), Column("source", "Source of the remediator")],
                    Query(f"max by (cluster, run_id) (run:training_unobserved:info{{{C}}})"),
                    Query(f"max by (cluster, source) (trainwarden_remediator_unable_to_judge{{{C}}} == 1)"),
                    width=8,
                ),
                graph(
                    "Exporters",
                    "Those that answer, of those that are expected.",
                    Query(f"sum(cluster:trainwarden_exporters:count{{{C}}})", "expected"),
                    Query(f"sum(cluster:trainwarden_exporters_up:count{{{C}}})", "answering"),
                    width=FULL,
                    height=6,
                ),
            ],
        ),
    ],
    since="now-24h",
)
