"""Remediation: what the remediator decided, what became of it, what it still may do, and whether it sees enough."""

from __future__ import annotations

from grafana.source.fleet import TO_RUN
from grafana.source.frame import alerts, board, cluster, decisions
from grafana.source.panels import Column, Query, Row, graph, rows, stats
from grafana.source.style import EFFICIENCY, NONE_IS_BETTER, NONE_IS_GOOD, ONE_IS_GOOD, Scale, Unit

C = 'cluster=~"$cluster"'
P = "trainwarden_remediator"
OF_INCIDENT = "cluster, run_id, job_id, attempt, failure_mode"

REMEDIATION = board(
    "train-remediation",
    "Training remediation",
    "What was decided, what became of it, and can the remediator still act?",
    [cluster()],
    [alerts(C + ',subsystem="remediator"'), decisions(C)],
    [
        Row(
            "Now",
            [
                stats(
                    "Works",
                    "1 if the loop could do all of its work when it last came round.",
                    Query(f"min({P}_loop_success{{{C}}})", "works"),
                    scale=ONE_IS_GOOD,
                    width=3,
                ),
                stats(
                    "Sources it cannot read",
                    "It acts on nothing that it cannot check.",
                    Query(f"sum({P}_unable_to_judge{{{C}}})", "sources"),
                    scale=NONE_IS_GOOD,
                    width=3,
                ),
                stats(
                    "In doubt",
                    "Calls that may or may not have taken effect. It looks until it is certain, and calls a person.",
                    Query(f'sum({P}_incidents{{state="IN_DOUBT",{C}}})', "in doubt"),
                    scale=NONE_IS_BETTER,
                    width=3,
                ),
                stats(
                    "Given up",
                    "Escalated: a person must look.",
                    Query(f"count({P}_escalation_info{{{C}}})", "given up"),
                    scale=NONE_IS_GOOD,
                    none="0",
                    width=3,
                ),
                stats(
                    "Recovered in a day",
                    "Of the restarts that have ended: the run passed its old high-water mark.",
                    Query(
                        f'sum(cluster:trainwarden_restarts:increase1d{{outcome="recovered",{C}}})'
                        f" / (sum(cluster:trainwarden_restarts:increase1d{{{C}}}) > 0)",
                        "recovered",
                    ),
                    unit=Unit.RATIO,
                    scale=EFFICIENCY,
                    width=3,
                ),
                stats(
                    "Detection to recovery",
                    "Median of a day, from the alert to the step past the old high-water mark; of the slowest cluster.",
                    Query(f"max(cluster:trainwarden_recovery_seconds:p50_1d{{{C}}})", "median"),
                    unit=Unit.SECONDS,
                    width=3,
                ),
                stats(
                    "GPU hours saved in a day",
                    "That runs would have gone on hanging until a person came after half an hour.",
                    Query(f"sum(cluster:trainwarden_gpu_hours_saved:increase1d{{{C}}})", "saved"),
                    unit=Unit.GPU_HOURS,
                    width=3,
                ),
                stats(
                    "GPU hours lost in a day",
                    "Work that restarts have ended and that was done again.",
                    Query(f"sum(cluster:trainwarden_gpu_hours_lost:increase1d{{{C}}})", "lost"),
                    unit=Unit.GPU_HOURS,
                    width=3,
                ),
            ],
        ),
        Row(
            "Decisions",
            [
                graph(
                    "Decisions",
                    "By what was decided and for which kind of failure.",
                    Query(
                        f"sum by (action, failure_mode) (increase({P}_decisions_total{{{C}}}[$__rate_interval])) > 0",
                        "{{action}} ({{failure_mode}})",
                    ),
                    bars=True,
                ),
                graph(
                    "Outcomes of restarts",
                    "In the day before. Adopted is a job that a user or the scheduler took over.",
                    Query(f"sum by (outcome) (cluster:trainwarden_restarts:increase1d{{{C}}})", "{{outcome}}"),
                ),
                rows(
                    "Open incidents",
                    "What it works on. One that stays in a state for minutes waits for a scheduler, or is in doubt.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("job_id", "Job"),
                        Column("attempt", "Attempt"),
                        Column("failure_mode", "Failure"),
                        Column("state", "State"),
                        Column("Value", "For", Unit.SECONDS),
                    ],
                    Query(f"time() - max by ({OF_INCIDENT}, state) ({P}_incident_timestamp_seconds{{{C}}})"),
                    width=12,
                ),
                rows(
                    "Alerts that await a decision",
                    "Received, not yet judged: a policy's delay, or an answer that is missing.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("alert", "Alert"),
                        Column("Value", "For", Unit.SECONDS),
                    ],
                    Query(f"time() - max by (cluster, run_id, alert) ({P}_alert_pending_timestamp_seconds{{{C}}})"),
                    width=12,
                ),
                rows(
                    "Given up and refused, with the reason",
                    "Given up is a page to a person; refused is a failure that the policy does not restart.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("attempt", "Attempt"),
                        Column("failure_mode", "Failure"),
                        Column("what", "What"),
                        Column("reason", "Reason"),
                    ],
                    Query(
                        f"""
                        max by ({OF_INCIDENT}, what, reason) (
                          label_replace({P}_escalation_info{{{C}}}, "what", "given up", "", "")
                          or label_replace({P}_refusal_info{{{C}}}, "what", "refused", "", "")
                        )
                        """
                    ),
                ),
            ],
        ),
        Row(
            "What it still may do",
            [
                rows(
                    "Budgets",
                    "Restarts left, by the last decision on a run.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("failure_mode", "Failure"),
                        Column("Value", "Left", scale=Scale("red", ((1, "yellow"), (2, "green")))),
                    ],
                    Query(f"min by (cluster, run_id, failure_mode) ({P}_budget_left{{{C}}})"),
                    width=8,
                ),
                rows(
                    "Jobs that could not be brought back now",
                    "Each reason that stands in the way, before anything has failed.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("job_id", "Job"),
                        Column("scheduler", "Scheduler"),
                        Column("reason", "Reason"),
                    ],
                    Query(f"max by (cluster, run_id, job_id, scheduler, reason) ({P}_recoverable{{{C}}} == 0)"),
                    width=10,
                ),
                graph(
                    "Jobs that it holds",
                    "Held between end and start of a restart. One without an open incident is a fault.",
                    Query(
                        f"sum by (scheduler, incident) ({P}_held_jobs{{{C}}})", "{{scheduler}}, incident {{incident}}"
                    ),
                    width=6,
                ),
            ],
        ),
        Row(
            "How well it judges",
            [
                graph(
                    "From detection to recovery",
                    "Over the restarts of the day before, of each cluster.",
                    Query(f"cluster:trainwarden_recovery_seconds:p50_1d{{{C}}}", "median {{cluster}}"),
                    Query(f"cluster:trainwarden_recovery_seconds:p90_1d{{{C}}}", "90th percentile {{cluster}}"),
                    unit=Unit.SECONDS,
                    width=8,
                ),
                rows(
                    "Score of the policies that only observe",
                    "What each would have done, and what people did. Let one act when its restarts are those of people.",
                    [
                        Column("policy", "Policy"),
                        Column("would", "Would"),
                        Column("outcome", "People"),
                        Column("Value", "Attempts"),
                    ],
                    Query(f"sum by (policy, would, outcome) ({P}_scores{{{C}}})"),
                    width=10,
                ),
                stats(
                    "Right, of the restarts it would have made",
                    "The part that people made as well.",
                    Query(
                        f'sum({P}_scores{{would="restart",outcome="restarted",{C}}})'
                        f' / sum({P}_scores{{would="restart",{C}}})',
                        "right",
                    ),
                    unit=Unit.RATIO,
                    scale=EFFICIENCY,
                    width=6,
                    height=8,
                ),
            ],
        ),
        Row(
            "What it hears and says",
            [
                graph(
                    "Readings without an answer",
                    "By source. What it cannot read it does not act on.",
                    Query(
                        f'sum by (source) (rate({P}_readings_total{{outcome="unknown",{C}}}[$__rate_interval]))',
                        "{{source}}",
                    ),
                    unit=Unit.PER_SECOND,
                    width=8,
                ),
                graph(
                    "Since it last heard",
                    "The watchdog comes each minute; a webhook that never comes means a broken route.",
                    Query(f"time() - max({P}_watchdog_last_received_timestamp_seconds{{{C}}})", "watchdog"),
                    Query(f"time() - max({P}_poll_last_success_timestamp_seconds{{{C}}})", "poll of Alertmanager"),
                    Query(f"time() - max({P}_loop_last_success_timestamp_seconds{{{C}}})", "loop"),
                    unit=Unit.SECONDS,
                    width=8,
                ),
                graph(
                    "Messages to people",
                    "Sent and failed by channel, and those that wait.",
                    Query(f"sum by (channel, outcome) ({P}_messages_total{{{C}}})", "{{channel}} {{outcome}}"),
                    Query(f"sum by (channel) ({P}_messages_pending{{{C}}})", "{{channel}} waiting"),
                    width=8,
                ),
            ],
        ),
    ],
    since="now-24h",
)
