"""Node: its GPUs, its network, what the kernel and the driver said, who uses it, and what cannot be read."""

from __future__ import annotations

from grafana.source.fleet import TO_RUN, TO_RUNBOOK
from grafana.source.frame import alerts, board, cluster, variable
from grafana.source.panels import Column, Query, Row, bands, graph, rows, stats
from grafana.source.style import HEAT, NONE_IS_BETTER, NONE_IS_GOOD, Unit

I = 'cluster=~"$cluster",instance=~"$instance"'  # noqa: E741  # the matchers of the node's exporters
N = 'cluster=~"$cluster",node="$node"'

NODE = board(
    "train-node",
    "Training node",
    "Is this node the cause, and who suffers from it?",
    [
        cluster(),
        variable(
            "node",
            "Node",
            'max by (node) (max_over_time(instance:training_node:name{cluster=~"$cluster"}[$__range]))',
            "node",
        ),
        variable(
            "instance",
            "Exporter",
            f"max by (instance) (max_over_time(instance:training_node:name{{{N}}}[$__range]))",
            "instance",
            every=True,
            several=True,
            hidden=True,
        ),
    ],
    [alerts(N)],
    [
        Row(
            "Now",
            [
                stats(
                    "Exporter",
                    "1 while it answers. While it does not, nothing of this page is current.",
                    Query(f"max(up{{{I}}})", "answers"),
                ),
                stats(
                    "GPUs missing",
                    "Expected by the instance type or by what the node once had, less those that the driver shows.",
                    Query(f"sum(gpu_devices_expected{{{I}}}) - sum(gpu_devices_visible{{{I}}})", "missing"),
                    scale=NONE_IS_GOOD,
                    none="no GPUs",
                ),
                stats(
                    "GPUs that do not answer",
                    "On the bus, or once there, and silent.",
                    Query(f"sum(gpu_node_devices_down{{{I}}})", "down"),
                    scale=NONE_IS_GOOD,
                    none="no GPUs",
                ),
                stats(
                    "Network ports down",
                    "Of EFA and InfiniBand.",
                    Query(f"sum(efa_node_ports_down{{{I}}})", "EFA"),
                    Query(f"sum(infiniband_port_up{{{I}}} == bool 0)", "InfiniBand"),
                    scale=NONE_IS_GOOD,
                    none="no fabric",
                ),
                stats(
                    "Collectors that hang",
                    "Parts of the node that have not answered within their deadline.",
                    Query(f"count(trainwarden_collector_stuck{{{I}}})", "hang"),
                    scale=NONE_IS_GOOD,
                    none="0",
                ),
                stats(
                    "Clock",
                    "How far it is off. Two nodes that differ by seconds accuse each other of silence.",
                    Query(f"max(abs(clock_offset_seconds{{{I}}}))", "off"),
                    unit=Unit.SECONDS,
                    none="unknown",
                ),
            ],
        ),
        Row(
            "What is wrong, and for whom",
            [
                bands(
                    "Alerts on this node",
                    "What fired here. The runbook of each is linked in the table below.",
                    Query(
                        f'max by (severity, alertname) (ALERTS{{alertstate="firing",severity!="none",{N}}})',
                        "{{severity}} {{alertname}}",
                    ),
                    height=5,
                ),
                rows(
                    "Firing now",
                    "Each alert has a runbook: what it means, how to check it, what to do.",
                    [
                        Column("alertname", "Alert and runbook", link=TO_RUNBOOK),
                        Column("severity", "Severity"),
                        Column("run_id", "Run", link=TO_RUN),
                    ],
                    Query(
                        f'max by (cluster, alertname, severity, run_id) (ALERTS{{alertstate="firing",severity!="none",{N}}})'
                    ),
                    width=8,
                ),
                rows(
                    "Jobs on this node",
                    "Runs whose ranks or GPUs are here, and jobs of SLURM.",
                    [
                        Column("run_id", "Run", link=TO_RUN),
                        Column("rank", "Rank"),
                        Column("job_id", "Job"),
                        Column("gpu", "GPU"),
                    ],
                    Query(f"max by (cluster, run_id, rank, gpu) (run_rank:training_rank:info{{{N}}})"),
                    Query(f"max by (cluster, run_id, job_id, gpu) (slurm_gpu_job_info{{{I}}})"),
                    width=8,
                ),
                rows(
                    "Faulty GPUs",
                    "Each fault by its name; docs/gpus.md has what to do.",
                    [
                        Column("gpu", "GPU"),
                        Column("fault", "Fault"),
                        Column("xid", "XID"),
                        Column("error", "Error"),
                        Column("uuid", "UUID"),
                    ],
                    Query(f"max by (gpu, uuid, fault, xid, error) (gpu:gpu_fault:node{{{N}}})"),
                    width=8,
                ),
            ],
        ),
        Row(
            "GPUs",
            [
                graph(
                    "Busy",
                    "Share of the time in which some kernel ran. A kernel that waits counts too.",
                    Query(f"max by (gpu) (gpu_utilization_ratio{{{I}}})", "GPU {{gpu}}"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                graph(
                    "Tensor cores at work",
                    "Near zero while the GPU is busy is a collective that waits.",
                    Query(f"max by (gpu) (gpu_tensor_active_ratio{{{I}}})", "GPU {{gpu}}"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                graph(
                    "Memory in use",
                    "What an earlier process has left shows while no job is here.",
                    Query(f"max by (gpu) (gpu_memory_used_bytes{{{I}}})", "GPU {{gpu}}"),
                    unit=Unit.BYTES,
                ),
                graph(
                    "Power",
                    "One that draws less than its neighbours works less, or is held down.",
                    Query(f"max by (gpu) (gpu_power_watts{{{I}}})", "GPU {{gpu}}"),
                    Query(f"max(gpu_power_limit_watts{{{I}}})", "limit"),
                    unit=Unit.WATTS,
                ),
                graph(
                    "Temperature",
                    "Of the hottest sensor of each GPU; the lines are those of TrainGpuHot.",
                    Query(f"max by (gpu) (gpu_temperature_celsius{{{I}}})", "GPU {{gpu}}"),
                    unit=Unit.CELSIUS,
                    scale=HEAT,
                ),
                graph(
                    "Held down",
                    "Share of the time in which a reason held the clocks of the GPUs down, summed over them. Without work"
                    " or by a power cap is no fault.",
                    Query(f"sum by (reason) (rate(gpu_throttle_seconds_total{{{I}}}[$__rate_interval]))", "{{reason}}"),
                    unit=Unit.RATIO,
                ),
                graph(
                    "Clock of the processors",
                    "Slower than the neighbours is a slow rank.",
                    Query(f'max by (gpu) (gpu_clock_hertz{{domain="sm",{I}}})', "GPU {{gpu}}"),
                    unit=Unit.HERTZ,
                ),
                graph(
                    "Over NVLink",
                    "Sent and received by each GPU.",
                    Query(
                        f"max by (gpu) (rate(gpu_nvlink_tx_bytes_total{{{I}}}[$__rate_interval]))", "GPU {{gpu}} sent"
                    ),
                    Query(
                        f"max by (gpu) (rate(gpu_nvlink_rx_bytes_total{{{I}}}[$__rate_interval]))",
                        "GPU {{gpu}} received",
                    ),
                    unit=Unit.BYTES_PER_SECOND,
                ),
                rows(
                    "XIDs",
                    "Errors that the driver reported, counted since the exporter first started, with what clears them.",
                    [
                        Column("gpu", "GPU"),
                        Column("xid", "XID"),
                        Column("meaning", "Meaning"),
                        Column("action", "Clears it"),
                        Column("Value #A", "Times", scale=NONE_IS_BETTER),
                        Column("Value #B", "Seconds ago", Unit.SECONDS),
                    ],
                    Query(
                        f"""
                        max by (gpu, xid, meaning, action) (
                          (gpu_xid_errors_total{{{I}}} > 0)
                            * on (cluster, instance, xid) group_left (meaning, action) gpu_xid_info{{{I}}}
                        )
                        """
                    ),
                    Query(f"time() - max by (gpu, xid) (gpu_xid_last_timestamp_seconds{{{I}}})"),
                    width=12,
                ),
                graph(
                    "Errors of memory and links",
                    "Uncorrected ones end a job; corrected ones that climb announce them.",
                    Query(f"sum by (kind) (gpu_node_ecc_errors_total{{{I}}})", "ECC {{kind}}"),
                    Query(f"sum by (error) (gpu_node_nvlink_errors_total{{{I}}})", "NVLink {{error}}"),
                ),
            ],
        ),
        Row(
            "Network",
            [
                graph(
                    "EFA",
                    "Sent and received by the node.",
                    Query(f"max(rate(efa_node_tx_bytes_total{{{I}}}[$__rate_interval]))", "sent"),
                    Query(f"max(rate(efa_node_rx_bytes_total{{{I}}}[$__rate_interval]))", "received"),
                    unit=Unit.BYTES_PER_SECOND,
                ),
                graph(
                    "InfiniBand",
                    "Sent and received by each device.",
                    Query(
                        f"max by (device) (rate(infiniband_tx_bytes_total{{{I}}}[$__rate_interval]))", "{{device}} sent"
                    ),
                    Query(
                        f"max by (device) (rate(infiniband_rx_bytes_total{{{I}}}[$__rate_interval]))",
                        "{{device}} received",
                    ),
                    unit=Unit.BYTES_PER_SECOND,
                ),
                graph(
                    "Trouble of EFA",
                    "Each is zero on a healthy path.",
                    Query(f"max(efa_node_ports_down{{{I}}})", "ports down"),
                    Query(
                        f"max(rate(efa_node_retransmitted_packets_total{{{I}}}[$__rate_interval]))",
                        "packets sent again per second",
                    ),
                    Query(
                        f"max(rate(efa_node_retransmission_timeouts_total{{{I}}}[$__rate_interval]))",
                        "time-outs per second",
                    ),
                    Query(
                        f"max(increase(efa_node_unresponsive_remotes_total{{{I}}}[$__rate_interval]))",
                        "remotes without answer",
                    ),
                ),
                graph(
                    "Trouble of InfiniBand",
                    "Errors of all ports together, by kind.",
                    Query(
                        f"max by (error) (increase(infiniband_node_errors_total{{{I}}}[$__rate_interval]))", "{{error}}"
                    ),
                    Query(f"sum(infiniband_port_up{{{I}}} == bool 0)", "ports down"),
                ),
            ],
        ),
        Row(
            "The node itself",
            [
                graph(
                    "What the kernel reported",
                    "Faults since the exporter first started; those that never happened are left out.",
                    Query(f"max by (event) (kernel_events_total{{{I}}}) > 0", "{{event}}"),
                    width=8,
                ),
                rows(
                    "Collectors",
                    "0 is a collector whose last sample failed; one that hangs shows the call it is in.",
                    [
                        Column("collector", "Collector"),
                        Column("device", "Device"),
                        Column("call", "Hangs in"),
                        Column("Value #A", "Good"),
                        Column("Value #B", "Takes", Unit.SECONDS),
                    ],
                    Query(f"min by (collector) (trainwarden_collector_success{{{I}}})"),
                    Query(f"max by (collector) (trainwarden_collector_duration_seconds{{{I}}})"),
                    Query(f"max by (collector, device, call) (trainwarden_collector_stuck{{{I}}})"),
                    width=8,
                ),
                graph(
                    "How long collectors take",
                    "One that climbs without end hangs.",
                    Query(f"max by (collector) (trainwarden_collector_duration_seconds{{{I}}})", "{{collector}}"),
                    unit=Unit.SECONDS,
                    width=8,
                ),
            ],
        ),
    ],
    since="now-3h",
)
