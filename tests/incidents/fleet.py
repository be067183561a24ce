"""What the exporters of a small fleet show at a second: its healthy pages, and the faults that can be put into them.

The fleet: run `r1` of four ranks on the nodes n1 and n2 with two GPUs each, SLURM's exporter on `head`, a remediator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.rules.promtool import LIVE, Page, present, ranks_of, run

JOB, RUN = "41", "r1"
HOSTS = ("n1", "n2")
GPUS = 2
STEP_SECONDS = 2.0
CHECKPOINT_SECONDS = 120
COLLECTORS = ("runs", "logs", "nvidia", "efa", "kernel", "clock", "gpu_jobs", "process")
XID_ACTIONS = ("none", "restart_app", "reset_gpu", "restart_vm", "check")


def series(name: str, value: float, /, **labels: str) -> Page:
    """Return one series; a label is written as `host_` where its name would be a word of Python."""
    inside = ",".join(f'{key.rstrip("_")}="{text}"' for key, text in labels.items())
    return {f"{name}{{{inside}}}": value}


def merged(pages: Iterable[Page]) -> Page:
    """Return all series; of one that is in two pages the later value."""
    return {name: value for page in pages for name, value in page.items()}


def without(page: Page, *texts: str) -> Page:
    """Return the series that hold none of the texts."""
    return {name: value for name, value in page.items() if not any(text in name for text in texts)}


def labelled(page: Page, **labels: str) -> Page:
    """Return every series with further labels, as a target's labels are added."""
    more = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return {name.replace("{", "{" + more + ",", 1): value for name, value in page.items()}


def last(t: int, until: float) -> float:
    """Return a time that follows the clock up to `until`."""
    return min(t, until)


def target(host: str, job: str = "trainwarden-exporter", port: int = 9745) -> dict[str, str]:
    """Return the labels of a scraped target."""
    return {"instance": f"{host}:{port}", "job": job}


def down(host: str, job: str = "trainwarden-exporter", port: int = 9745) -> Page:
    """A target that does not answer."""
    return series("up", 0, **target(host, job, port))


def exporter(
    t: int, host: str, *, collectors: Sequence[str] = COLLECTORS, read: Mapping[str, float] | None = None
) -> Page:
    """An exporter's own series; `read` holds when a collector last succeeded."""
    ours = target(host)
    page = series("up", 1, **ours)
    page |= series(
        "trainwarden_node_info", 1, host=host, slurm_node=host, instance_id=f"i-{host}", instance_type="p5", **ours
    )
    page |= series("trainwarden_exporter_released", 0, **ours)
    for collector in collectors:
        at = last(t, (read or {}).get(collector, LIVE))
        page |= series("trainwarden_collector_success", float(t - at < 30), collector=collector, **ours)
        page |= series("trainwarden_collector_last_success_timestamp_seconds", at, collector=collector, **ours)
        page |= series("trainwarden_collector_duration_seconds", 0.01, collector=collector, **ours)
    return page


def uuid(host: str, gpu: int) -> str:
    """Return the name of a GPU of the fleet."""
    return f"GPU-{host}-{gpu}"


def gpus(
    t: int,
    host: str,
    *,
    busy: float = 0.97,
    units: float | None = 0.45,
    watts: float = 640.0,
    lost: Sequence[int] = (),
    throttled_since: float = LIVE,
    run_id: str = RUN,
) -> Page:
    """The GPUs of a node; those that are `lost` stay visible as down."""
    ours = target(host)
    page = series("gpu_devices_expected", GPUS, vendor="nvidia", **ours)
    page |= series("gpu_devices_visible", GPUS - len(lost), vendor="nvidia", **ours)
    page |= series("gpu_node_devices_down", len(lost), vendor="nvidia", **ours)
    for name, value in (("utilization_ratio", busy), ("power_watts", watts), ("temperature_celsius", 61.0)):
        for stat in ("min", "max", "avg") if name != "power_watts" else ("min", "max", "avg", "sum"):
            total = value * GPUS if stat == "sum" else value
            page |= series(f"gpu_node_{name}", total, vendor="nvidia", stat=stat, **ours)
    page |= series("gpu_node_memory_used_bytes", 140e9, vendor="nvidia", **ours)
    for action in XID_ACTIONS:
        page |= series("gpu_node_xid_errors_total", 0, vendor="nvidia", action=action, **ours)
    for gpu in range(GPUS):
        card = {"gpu": str(gpu), "uuid": uuid(host, gpu), **ours}
        page |= series("gpu_up", float(gpu not in lost), **card)
        page |= series("training_gpu_info", 1, run_id=run_id, **card)
        if gpu in lost:
            page |= series("gpu_error_info", 1, error="gpu_is_lost", **card)
            continue
        page |= series("gpu_info", 1, vendor="nvidia", model="H100", pci_bus_id=f"0000:0{gpu}:00.0", **card)
        page |= series("gpu_utilization_ratio", busy, **card)
        page |= series("gpu_sm_active_ratio", busy, **card)
        if units is not None:
            page |= series("gpu_units_active_ratio", units, **card) | series("gpu_tensor_active_ratio", units, **card)
        page |= series("gpu_power_watts", watts, **card) | series("gpu_power_limit_watts", 700, **card)
        page |= series("gpu_temperature_celsius", 61, sensor="gpu", **card)
        page |= series("gpu_memory_used_bytes", 70e9, **card) | series("gpu_memory_size_bytes", 80e9, **card)
        page |= series("gpu_recovery_action", 0, **card) | series("gpu_fabric_healthy", 1, **card)
        for reason in ("hw_thermal", "hw_power_brake", "sw_power_cap"):
            since = throttled_since if reason == "hw_thermal" else LIVE
            page |= series("gpu_throttle_active", float(t >= since), reason=reason, **card)
            page |= series("gpu_throttle_seconds_total", max(0.0, t - since), reason=reason, **card)
        for kind in ("uncorrected", "corrected"):
            page |= series("gpu_ecc_errors_total", 0, kind=kind, **card)
        page |= series("gpu_remapped_rows_pending", 0, **card) | series("gpu_row_remap_failure", 0, **card)
    return page


def efa(t: int, host: str, *, down_since: float = LIVE, stopped: float = LIVE) -> Page:
    """The EFA devices of a node: bytes move until `stopped`; one port is down from `down_since` on."""
    ours = target(host)
    is_down = t >= down_since
    page = series("efa_devices", 2, **ours) | series("efa_devices_expected", 2, **ours)
    page |= series("efa_node_ports_down", float(is_down), **ours)
    moved = 1e9 * last(t, stopped)
    page |= series("efa_node_tx_bytes_total", moved, **ours) | series("efa_node_rx_bytes_total", moved, **ours)
    page |= series("efa_node_retransmitted_bytes_total", 0, **ours)
    for number in range(2):
        device = {"device": f"rdmap{number}s0", **ours}
        page |= series("efa_device_up", 1, **device)
        page |= series("efa_port_up", float(not (is_down and number == 0)), port="1", **device)
        page |= series("efa_retransmission_timeouts_total", 0, port="1", **device)
        page |= series("efa_unresponsive_remotes_total", 0, port="1", **device)
    return page


def host_health(t: int, host: str, *, oom_at: float = LIVE, synchronized: bool = True, offset: float = 0.0001) -> Page:
    """The kernel's log and the clock of a node."""
    ours = target(host)
    page = series("kernel_events_since_timestamp_seconds", 0, **ours)
    for event in ("oom_kill", "hung_task", "nfs_not_responding"):
        happened = event == "oom_kill" and t >= oom_at
        page |= series("kernel_events_total", float(happened), event=event, **ours)
        if happened:
            page |= series("kernel_event_last_timestamp_seconds", oom_at, event=event, **ours)
            page |= series("kernel_oom_kill_timestamp_seconds", oom_at, process="python3", job_id=JOB, **ours)
    page |= series("clock_synchronized", float(synchronized), **ours)
    return page | series("clock_offset_seconds", offset, source="chrony", **ours)


def slurm(
    t: int,
    *,
    state: str = "running",
    restarts: int = 0,
    nodes: Mapping[str, str] | None = None,
    run_id: str = RUN,
    job_id: str = JOB,
    reason: str = "",
) -> Page:
    """What the exporter on the head node shows of SLURM; `nodes` holds the state of each."""
    ours, job = target("head"), {"run_id": run_id, "job_id": job_id}
    page = series("slurm_job_info", 1, queue_id=job_id, name="train", user="alice", partition="gpu", **job, **ours)
    for each in (
        "pending",
        "running",
        "suspended",
        "completing",
        "completed",
        "failed",
        "cancelled",
        "timeout",
        "node_fail",
        "preempted",
    ):
        page |= series("slurm_job_state", float(each == state), state=each, **job, **ours)
    page |= series("slurm_job_restarts", restarts, **job, **ours)
    page |= series("slurm_job_nodes", len(HOSTS), **job, **ours)
    if reason:
        page |= series("slurm_job_pending_info", 1, reason=reason, **job, **ours)
    states = {"n1": "allocated", "n2": "allocated"} | dict(nodes or {})
    for node, its in states.items():
        page |= series("slurm_node_state", 1, node=node, state=its, **ours)
        if state == "running":
            page |= series("slurm_job_node_info", 1, job_id=job_id, node=node, **ours)
        if its in {"drained", "draining"}:
            page |= series("slurm_node_drain_info", 1, node=node, reason="xid 79", user="ops", **ours)
    collectors = (*COLLECTORS, "slurm")
    return page | without(exporter(t, "head", collectors=collectors), "efa", "nvidia")


def remediator(t: int) -> Page:
    """A remediator that is well and has nothing to do."""
    ours = target("head", "trainwarden-remediator", 9746)
    page = series("up", 1, **ours)
    for name in ("poll", "loop"):
        page |= series(f"trainwarden_remediator_{name}_success", 1, **ours)
        page |= series(f"trainwarden_remediator_{name}_last_success_timestamp_seconds", t, **ours)
    for name in ("webhook", "watchdog"):
        page |= series(f"trainwarden_remediator_{name}_last_received_timestamp_seconds", t - t % 60, **ours)
    return page


def training(
    t: int,
    *,
    run_id: str = RUN,
    host: str = "n1",
    rank_hosts: Sequence[str] = ("n1", "n1", "n2", "n2"),
    stopped: float = LIVE,
    beats: float = LIVE,
    rank_beats: Mapping[int, float] | None = None,
    rank_states: Mapping[int, str] | None = None,
    loss: float | None = 2.0,
    nonfinite: float = 0,
    phase: str = "train",
    phase_start: float | None = 0,
    state: str = "running",
    end: float | None = None,
    start: float = 1,
    attempt: int = 0,
    step_seconds: float = STEP_SECONDS,
    first_step: int = 0,
    high_water: float | None = None,
    checkpointed: float = LIVE,
    log_written: float = LIVE,
    sections: Mapping[int, Mapping[str, float]] | None = None,
    answering: bool = True,
    avail_bytes: float = 5e12,
    transport_ok: bool = True,
    failure: Mapping[str, str] | None = None,
    stale: float = 60,
    job_id: str = JOB,
    jitter: float = 0.0,
) -> Page:
    """A run of four ranks; a time is the last one of its kind.

    The step advances until `stopped`; the processes of all ranks live until `beats`.
    """
    ours, its = target(host), {"run_id": run_id}
    at = last(t, stopped)
    steps = first_step + max(0.0, at - start) // step_seconds
    page = run(
        t, run_id=run_id, instance=ours["instance"], host=host, job_id=job_id, attempt=attempt, start=start,
        state=state, end=end, failed_at=end if state == "failed" else None, failure=failure, stale=stale,
        phase=phase, phase_start=phase_start, metadata=beats, progress=min(beats, stopped), step=stopped,
    )  # fmt: skip
    page = without(page, "trainwarden_collector_last_success_timestamp_seconds")
    page |= series("training_step", steps, **its, **ours) | series("training_steps_target", 1e6, **its, **ours)
    page |= series("training_steps_completed_total", steps, **its, **ours)
    page |= series("training_step_high_water", max(steps, high_water or 0), **its, **ours)
    if loss is not None:
        page |= series("training_loss", loss, **its, **ours)
    page |= series("training_nonfinite_total", nonfinite, **its, **ours)
    page |= series("training_tokens_per_second", 4e4 if t <= stopped else 0, **its, **ours)
    saved = last(t, min(stopped, checkpointed)) // CHECKPOINT_SECONDS
    if saved:
        page |= series(
            "training_checkpoint_step", first_step + saved * CHECKPOINT_SECONDS // step_seconds, **its, **ours
        )
        page |= series("training_checkpoint_timestamp_seconds", saved * CHECKPOINT_SECONDS, **its, **ours)
        page |= series("training_checkpoint_size_bytes", 16e9, **its, **ours)
    page |= series("training_checkpoints_total", saved, **its, **ours)
    for quantile, factor in (("0.5", 1.0), ("0.99", 1.1 + jitter), ("1", 1.2 + jitter)):
        page |= series("training_step_duration_seconds", step_seconds * factor, quantile=quantile, **its, **ours)
    page |= series("training_step_durations_observed", min(512.0, steps), **its, **ours)
    page |= series(
        "training_log_last_write_timestamp_seconds", last(t, min(log_written, beats, stopped)), **its, **ours
    )
    page |= series("training_log_silence_threshold_seconds", 600, **its, **ours)
    page |= series("training_nccl_transport_ok", float(transport_ok), **its, **ours)
    page |= series("training_nccl_transport_requested", 4, transport="efa", **its, **ours)
    used = "efa" if transport_ok else "socket"
    page |= series("training_nccl_transport", 4, transport=used, provider=used, **its, **ours)
    for use in ("record", "logs", "checkpoints"):
        page |= series("training_filesystem_size_bytes", 1e13, use=use, **its, **ours)
        page |= series("training_filesystem_avail_bytes", avail_bytes, use=use, **its, **ours)
        page |= series("training_filesystem_files_avail", 1e9, use=use, **its, **ours)
        slow = use == "checkpoints" and not answering
        page |= series("training_filesystem_answering", float(not slow), use=use, **its, **ours)
        page |= series("training_filesystem_answer_seconds", 0.002, use=use, **its, **ours)
    all_beats = {rank: (rank_beats or {}).get(rank, beats) for rank in range(len(rank_hosts))}
    for rank_host in dict.fromkeys(rank_hosts):
        here = {rank: beat for rank, beat in all_beats.items() if rank_hosts[rank] == rank_host}
        until = stale if state == "running" else LIVE
        page |= present(ranks_of(t, run_id, target(rank_host)["instance"], rank_host, here, until))
    counted = dict.fromkeys(rank_hosts, 0.0)
    for rank, rank_host in enumerate(rank_hosts):
        one = {"rank": str(rank), **its, **target(rank_host)}
        gpu = rank % GPUS
        beat = all_beats[rank]
        step = first_step + max(0.0, last(t, min(stopped, beat)) - start) // step_seconds
        counted[rank_host] += step
        page |= series("training_rank_step", step, **one)
        page |= series(
            "training_rank_info", 1, host=rank_host, gpu=str(gpu), uuid=uuid(rank_host, gpu), pid=str(900 + rank), **one
        )
        page |= series("training_rank_process_state", 1, state=(rank_states or {}).get(rank, "alive"), **one)
        for section, seconds in (sections or {}).get(rank, {"data": 0.1, "forward": 0.6, "backward": 1.2}).items():
            page |= series("training_section_seconds", seconds, section=section, **one)
    for rank_host, steps_of_ranks in counted.items():
        page |= series("training_host_rank_steps", steps_of_ranks, host=rank_host, **its, **target(rank_host))
    return page


def fleet(t: int, **replaced: Page) -> Page:
    """Return the pages of all exporters.

    Args:
        t: seconds since the beginning.
        replaced: pages in place of the healthy ones: `training`, `slurm`, `remediator`, and for each node
            `n1_exporter`, `n1_gpus`, `n1_efa` and `n1_health`. Any other name adds a page.
    """
    parts = {"slurm": slurm(t), "remediator": remediator(t), "training": training(t)}
    for host in HOSTS:
        parts |= {
            f"{host}_exporter": exporter(t, host),
            f"{host}_gpus": gpus(t, host),
            f"{host}_efa": efa(t, host),
            f"{host}_health": host_health(t, host),
        }
    return merged((parts | replaced).values())


def lost_node(page: Page, host: str) -> Page:
    """Return the page without anything that the exporter of a node showed; its target is down."""
    return without(page, f'instance="{target(host)["instance"]}"') | down(host)
