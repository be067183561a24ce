"""Run: is it moving, where is it stuck, what has happened to it, and what would a restart lose?"""

from __future__ import annotations

from grafana.source.fleet import TO_NODE, TO_RUNBOOK
from grafana.source.frame import alerts, annotation, board, cluster, decisions, variable
from grafana.source.panels import Column, Query, Row, bands, graph, rows, stats
from grafana.source.style import BUDGET, CALM, EFFICIENCY, Scale, Unit

R = 'cluster=~"$cluster",run_id="$run"'
RANK = R + ',rank=~"$rank"'


def _last(name: str, label: str) -> str:
    """Return the label that a metric had last in the time that is shown, also of a run that has ended since."""
    return f"topk(1, max by ({label}) (max_over_time(timestamp({name}{{{R}}})[$__range:])))"


def _newest(metric: str, matchers: str = R) -> str:
    """Return the series of a metric without those of a record that an earlier attempt has left on another node."""
    return f"({metric}{{{matchers}}} unless on (cluster, instance, run_id) run:training_record:superseded{{{R}}})"


def _present(metric: str) -> str:
    """Return the series of ranks without those of nodes that the run has left."""
    return f"({metric}{{{RANK}}} unless on (cluster, instance, run_id) run_instance:training_ranks:left{{{R}}})"


RUN = board(
    "train-run",
    "Training run",
    "Is this run moving, where is it stuck, and what would a restart lose?",
    [
        cluster(),
        variable(
            "run",
            "Run",
            'max by (run_id) (max_over_time(training_run_info{cluster=~"$cluster"}[$__range]))',
            "run_id",
        ),
        variable(
            "rank",
            "Rank",
            f"max by (rank) (max_over_time(training_rank_step{{{R}}}[$__range]))",
            "rank",
            every=True,
            several=True,
        ),
    ],
    [
        annotation(
            "Restarts",
            f"changes(max(training_run_attempt{{{R}}})[1m:15s]) > 0",
            "new attempt",
            color=CALM,
        ),
        alerts(R),
        decisions(R),
    ],
    [
        Row(
            "Now",
            [
                stats(
                    "State",
                    "What the record says, corrected by its sentinels. Running alone does not mean that steps advance.",
                    Query(_last("run:training_run_state:current", "state"), "{{state}}"),
                    names=True,
                    width=3,
                ),
                stats(
                    "Phase",
                    "The phase chooses the stall budget.",
                    Query(_last("run:training_phase:current", "phase"), "{{phase}}"),
                    names=True,
                    width=3,
                ),
                stats(
                    "Budget used without a step",
                    "Time since the last new step, as a share of what the phase may take. At 100 % TrainRunStalled"
                    " fires. Empty in phases without a budget.",
                    Query(
                        f"run:training_standstill_seconds:current{{{R}}}"
                        f" / run:training_stall_threshold_seconds:current{{{R}}}",
                        "used",
                    ),
                    unit=Unit.RATIO,
                    scale=BUDGET,
                    width=3,
                ),
                stats(
                    "Last sign of life",
                    "Silence of everything: metadata, progress and ranks. Beyond the stale threshold TrainRunTimedOut"
                    " fires.",
                    Query(
                        f"run:training_silence_seconds:current{{{R}}} / run:training_stale_threshold_seconds:current{{{R}}}",
                        "of the threshold",
                    ),
                    unit=Unit.RATIO,
                    scale=BUDGET,
                    width=3,
                ),
                stats(
                    "Complete",
                    "Step of the planned steps. Empty if the training did not say how many it plans.",
                    Query(f"max(run:training_complete:ratio{{{R}}})", "complete"),
                    unit=Unit.RATIO,
                    width=3,
                ),
                stats(
                    "Attempt",
                    "Counts from 0; a restart raises it.",
                    Query(f"max(training_run_attempt{{{R}}})", "attempt"),
                    width=3,
                ),
                stats(
                    "Goodput",
                    "Time with progress, of the time of all attempts. See docs/goodput.md.",
                    Query(f"max(run:training_goodput:ratio{{{R}}})", "goodput"),
                    unit=Unit.RATIO,
                    scale=EFFICIENCY,
                    width=3,
                ),
                stats(
                    "Cost so far",
                    "GPU hours by the price of rules/values.yml, all attempts.",
                    Query(f"max(run:training_cost_dollars:sum{{{R}}})", "cost"),
                    unit=Unit.DOLLARS,
                    width=3,
                ),
            ],
        ),
        Row(
            "What happened",
            [
                bands(
                    "Incidents",
                    "Alerts that fired for this run, and open incidents of the remediator.",
                    Query(
                        f'max by (severity, alertname) (ALERTS{{alertstate="firing",{R}}})',
                        "{{severity}} {{alertname}}",
                    ),
                    Query(
                        f"max by (state, failure_mode) (trainwarden_remediator_incident_timestamp_seconds{{{R}}} > bool 0)",
                        "{{state}} {{failure_mode}} (remediator)",
                    ),
                ),
                bands(
                    "Phases and states",
                    "What the training says that it does, and the state of its record.",
                    Query(f"max by (phase) (run:training_phase:current{{{R}}})", "{{phase}}"),
                    Query(f"max by (state) (run:training_run_state:current{{{R}}})", "{{state}} (state)"),
                    height=5,
                ),
                rows(
                    "Firing now",
                    "Each alert has a runbook: what it means, how to check it, what to do.",
                    [
                        Column("alertname", "Alert and runbook", link=TO_RUNBOOK),
                        Column("severity", "Severity"),
                        Column("node", "Node", link=TO_NODE),
                        Column("remediate", "Restarts the run"),
                    ],
                    Query(
                        f"max by (cluster, alertname, severity, node, remediate)"
                        f' (ALERTS{{alertstate="firing",severity!="none",{R}}})'
                    ),
                    width=12,
                    height=6,
                ),
                rows(
                    "Suspects",
                    "Ranks and nodes at which a stall, a slow pace or a fault began. Look there first.",
                    [
                        Column("why", "Why"),
                        Column("rank", "Rank"),
                        Column("ranks", "Ranks"),
                        Column("node", "Node", link=TO_NODE),
                        Column("gpu", "GPU"),
                        Column("fault", "Fault"),
                    ],
                    Query(
                        f"""
                        max by (cluster, why, rank, node) (
                          label_replace(run_rank:training_absent:suspect{{{R}}}, "why", "has not joined the collective", "", "")
                          or label_replace(run_rank:training_suspect:node{{{R}}}, "why", "its process is gone or stuck", "", "")
                          or label_replace(run_rank:training_straggler:node{{{R}}}, "why", "slower than the others", "", "")
                        )
                        """
                    ),
                    Query(
                        "max by (cluster, why, ranks, node) (label_replace("
                        f'run_node:training_silent_ranks_seconds:max{{{R}}}, "why", "silent", "", ""))'
                    ),
                    Query(
                        "max by (cluster, why, node, gpu, fault) (label_replace("
                        f'gpu:gpu_fault:identified{{{R}}}, "why", "faulty GPU", "", ""))'
                    ),
                    width=12,
                    height=6,
                ),
                rows(
                    "Last failure",
                    "The verdict on an attempt, what the run said last, and what helps.",
                    [
                        Column("attempt", "Attempt"),
                        Column("error_type", "Error type"),
                        Column("failure", "Failure"),
                        Column("subsystem", "Subsystem"),
                        Column("message", "Message"),
                        Column("last_line", "Last line"),
                        Column("hint", "Hint"),
                    ],
                    Query(
                        f"""
                        max by (run_id, attempt, error_type, failure, subsystem, message, last_line, hint) (
                          training_failure_info{{{R}}}
                            * on (cluster, instance, run_id) group_left (message, last_line, hint)
                            training_failure_message_info{{{R}}}
                          or on (cluster, instance, run_id) training_failure_info{{{R}}}
                        )
                        """
                    ),
                    height=5,
                ),
            ],
        ),
        Row(
            "Progress",
            [
                graph(
                    "Step",
                    "A flat step while the run lives is a stall; a drop is a restart from the last checkpoint, and has"
                    " recovered once it passes the high-water mark.",
                    Query("max" + _newest("training_step"), "step"),
                    Query(f"max(training_step_high_water{{{R}}})", "high-water mark"),
                    Query(f"max(training_checkpoint_step{{{R}}})", "last checkpoint"),
                ),
                graph(
                    "Steps per second",
                    "Steps done, repeated ones included. Slower than usual on all ranks points at storage or network, on"
                    " one rank at its node.",
                    Query(f"sum(rate(training_steps_completed_total{{{R}}}[$__rate_interval]))", "steps per second"),
                    unit=Unit.PER_SECOND,
                ),
                graph(
                    "Time of a step",
                    "Of the last 512 steps. A longest far over the median is pauses; a median that rises is a run that"
                    " slows down.",
                    Query("max" + _newest("training_step_duration_seconds", f'quantile="0.5",{R}'), "median"),
                    Query("max" + _newest("training_step_duration_seconds", f'quantile="0.99",{R}'), "99th percentile"),
                    Query("max" + _newest("training_step_duration_seconds", f'quantile="1",{R}'), "longest"),
                    unit=Unit.SECONDS,
                ),
                graph(
                    "Where the time of a step goes",
                    "Sections that the script names, the slowest of the chosen ranks.",
                    Query("max by (section) " + _present("training_section_seconds"), "{{section}}"),
                    unit=Unit.SECONDS,
                    stacked=True,
                ),
                graph(
                    "Loss",
                    "A gap is a loss that was not finite.",
                    Query("max" + _newest("training_loss"), "loss"),
                    Query(f"sum(increase(training_nonfinite_total{{{R}}}[$__rate_interval]))", "not finite"),
                ),
                graph(
                    "Throughput",
                    "As the training reports it.",
                    Query(f"max(run:training_tokens_per_second:max{{{R}}})", "tokens per second"),
                    Query(f"max(run:training_samples_per_second:max{{{R}}})", "samples per second"),
                    second={"samples per second": Unit.NUMBER},
                ),
            ],
        ),
        Row(
            "Life",
            [
                graph(
                    "Time without a new step",
                    "Against the budget of the phase.",
                    Query(f"max(run:training_standstill_seconds:current{{{R}}})", "without a step"),
                    Query(f"max(run:training_stall_threshold_seconds:current{{{R}}})", "budget"),
                    unit=Unit.SECONDS,
                ),
                graph(
                    "Silence of each heartbeat",
                    "The process (metadata), the loop (progress, in the train phase) and the eight most silent of the"
                    " chosen ranks, against the stale threshold.",
                    Query(f"max by (source) (run:training_heartbeat_silence_seconds:current{{{R}}})", "{{source}}"),
                    Query(f"topk(8, run_rank:training_heartbeat_silence_seconds:min{{{RANK}}})", "rank {{rank}}"),
                    Query(f"max(run:training_stale_threshold_seconds:current{{{R}}})", "threshold"),
                    unit=Unit.SECONDS,
                ),
                graph(
                    "Step of each rank",
                    "The rank that stays behind, or is one step apart from all others, is where a stall began.",
                    Query("max by (rank) " + _present("training_rank_step"), "rank {{rank}}"),
                ),
                graph(
                    "Distance between the ranks",
                    "Steps from the first rank to the last. In lock step it is at most one.",
                    Query(f"max(run:training_rank_spread_steps:max{{{R}}})", "steps"),
                ),
            ],
        ),
        Row(
            "What a restart would lose",
            [
                graph(
                    "Steps that a restart would lose now",
                    "Distance from the last checkpoint. It should saw up and down; a line that only climbs is a run that"
                    " saves nothing.",
                    Query(f"max(run:training_checkpoint_lag_steps:max{{{R}}})", "steps"),
                    width=8,
                ),
                graph(
                    "What a restart would cost now",
                    "GPU hours since the last checkpoint, and their price.",
                    Query(f"max(run:training_restart_gpu_hours:current{{{R}}})", "GPU hours"),
                    Query(f"max(run:training_restart_cost_dollars:current{{{R}}})", "price"),
                    second={"price": Unit.DOLLARS},
                    width=8,
                ),
                graph(
                    "What the run's time went into",
                    "Seconds of all its attempts, by what it did; productive is progress that was kept.",
                    Query(f"max by (use) (run:training_use_seconds:sum{{{R}}})", "{{use}}"),
                    unit=Unit.SECONDS,
                    stacked=True,
                    width=8,
                ),
            ],
        ),
        Row(
            "Its nodes",
            [
                graph(
                    "GPUs at work",
                    "Of the GPUs that the run alone uses. Busy while no unit works and the step stands still is a"
                    " collective that waits.",
                    Query(f"max(run:gpu_utilization:avg{{{R}}})", "busy"),
                    Query(f"max(run:gpu_units_active:avg{{{R}}})", "busiest unit"),
                    Query(f"max(run:gpus_idle:ratio{{{R}}})", "share that is idle"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                graph(
                    "Power of the GPUs",
                    "Of all GPUs that the run alone uses. A run that hangs in a collective draws about half of what it"
                    " draws while it computes.",
                    Query(f"max(run:gpu_power_watts:sum{{{R}}})", "all GPUs"),
                    unit=Unit.WATTS,
                ),
                graph(
                    "Sent and received over the network",
                    "By the nodes on which the run works alone. Nothing while the step stands still points at a hang"
                    " before the collective, a part of the usual at one slow node.",
                    Query(f"max(run:efa_tx_bytes:rate5m{{{R}}})", "EFA sent"),
                    Query(f"max(run:efa_rx_bytes:rate5m{{{R}}})", "EFA received"),
                    Query(f"max(run:infiniband_tx_bytes:rate2m{{{R}}})", "InfiniBand sent"),
                    Query(f"max(run:infiniband_rx_bytes:rate2m{{{R}}})", "InfiniBand received"),
                    unit=Unit.BYTES_PER_SECOND,
                ),
                graph(
                    "Packets sent again",
                    "Share of what EFA sent. Over one in a hundred is too many.",
                    Query(f"max(run:efa_retransmitted_packets:ratio5m{{{R}}})", "EFA"),
                    unit=Unit.RATIO,
                    scale=Scale(CALM, ((0.01, "red"),)),
                ),
                graph(
                    "Trouble in the network",
                    "Each is zero on a healthy fabric. Ports that are down name a node, time-outs and remotes that do not"
                    " answer a path or a peer.",
                    Query(f"max(run:efa_ports_down:sum{{{R}}})", "EFA ports down"),
                    Query(f"max(run:efa_retransmission_timeouts:rate5m{{{R}}})", "EFA time-outs per second"),
                    Query(
                        f"max(run:efa_unresponsive_remotes:increase5m{{{R}}})",
                        "EFA remotes without answer in 5 minutes",
                    ),
                    Query(f"max(run:infiniband_ports_down:count{{{R}}})", "InfiniBand ports down"),
                    Query(
                        f"max by (error) (run:infiniband_errors:increase5m{{{R}}})",
                        "InfiniBand {{error}} errors in 5 minutes",
                    ),
                    width=12,
                ),
                rows(
                    "Nodes and ranks",
                    "Where each rank runs, with its GPU.",
                    [
                        Column("rank", "Rank"),
                        Column("node", "Node", link=TO_NODE),
                        Column("gpu", "GPU"),
                        Column("Value #B", "Step"),
                        Column("Value #C", "Silent for", Unit.SECONDS),
                    ],
                    Query(f"max by (cluster, rank, node, gpu) (run_rank:training_rank:info{{{RANK}}})"),
                    Query("max by (cluster, rank) " + _present("training_rank_step")),
                    Query(f"min by (cluster, rank) (run_rank:training_heartbeat_silence_seconds:min{{{RANK}}})"),
                    width=12,
                ),
            ],
        ),
    ],
    refresh="10s",
    since="now-1h",
)
