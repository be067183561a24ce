"""A bad day of a small fleet: what exporters, remediator and fine-tuning jobs show of it, all faults at once.

The node n2 shows the page that the real exporter prints of a half dead node; the rest is as in `fleet`.
"""

from __future__ import annotations

import functools
import re

from tests.incidents.fleet import down, efa, exporter, fleet, gpus, host_health, merged, series, slurm, target, training
from tests.rules.promtool import ROOT, Page, run

HALF_DEAD = ROOT / "tests/integration/exporter/nodes/golden/half_dead.prom"
RESTARTED = 120
FAILURE = {"attempt": "0", "error_type": "oom", "failure": "cuda_oom", "subsystem": "memory", "severity": "critical"}
_P = "trainwarden_remediator"
_LABEL = re.compile(r'\w+="(?:[^"\\]|\\.)*"')
_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def bad_day(t: int) -> Page:
    """Return what is scraped at a second.

    Run `r1` limps on n1 and n2 in its second attempt, `r0` has failed, n3 does not answer, n4 reads no records now.
    """
    limping = training(
        t,
        attempt=int(t >= RESTARTED),
        start=1 if t < RESTARTED else RESTARTED,
        phase="init" if t < RESTARTED else "train",
        phase_start=0 if t < RESTARTED else RESTARTED,
        sections={rank: {"data": 1.6 if rank == 3 else 0.1, "backward": 1.2} for rank in range(4)},
        rank_beats={2: 300.0},
        nonfinite=t // 60,
    )
    failed = run(
        t, run_id="r0", job_id="40", state="failed", end=60, failed_at=60, metadata=60, progress=60, step=60,
        failure=FAILURE,
    )  # fmt: skip
    unseen = run(t, run_id="r2", job_id="42", instance="n4:9745", host="n4", read=60, metadata=60, progress=60, step=60)
    day = fleet(
        t,
        training=merged([failed, limping, _more_of_the_run(t)]),
        slurm=slurm(t) | series("slurm_job_gpus", 4, run_id="r1", job_id="41", **target("head")),
        n2_exporter=exporter(t, "n2"),
        n2_gpus=gpus(t, "n2", units=0.1, throttled_since=60),
        n2_efa=efa(t, "n2", down_since=60),
        n2_health=host_health(t, "n2", oom_at=60),
        n2_more=_more_of_the_node(t),
        n3=down("n3"),
        n4=merged([exporter(t, "n4", read={"runs": 60}), unseen]),
        remediator=_remediator(t),
        finetuning=_finetuning(t),
    )
    # What is simulated of n2 counts where the real page shows it too.
    return {_sorted(name): value for name, value in (*_half_dead(t).items(), *day.items())}


@functools.cache
def _sorted(name: str) -> str:
    """Return a series with its labels in order, so that one that is shown twice is one."""
    metric, _, labels = name.partition("{")
    return f"{metric}{{{','.join(sorted(_LABEL.findall(labels)))}}}"


@functools.cache
def _printed() -> list[tuple[str, str, float]]:
    """Return name, labels and value of the series that the real exporter printed of a half dead node."""
    lines = HALF_DEAD.read_text(encoding="utf-8").splitlines()
    found = [_SERIES.match(line) for line in lines if not line.startswith("#")]
    return [(each[1], each[2] or "", float(each[3])) for each in found if each]


def _half_dead(t: int) -> Page:
    """Return that page as n2's; times, which the golden page leaves out, are the present."""
    ours = ",".join(f'{key}="{value}"' for key, value in target("n2").items())
    page = {}
    for name, labels, value in _printed():
        inside = ",".join(each for each in (labels.replace('"node1"', '"n2"'), ours) if each)
        shown = t if name.endswith("_timestamp_seconds") else value + t * name.endswith("_bytes_total")
        page[f"{name}{{{inside}}}"] = float(shown)
    return page


def _more_of_the_run(t: int) -> Page:
    its = {"run_id": "r1", **target("n1")}
    page = series("training_failure_info", 1, **FAILURE, **its)
    page |= series("training_failure_message_info", 1, message="CUDA out of memory", last_line="", hint="less", **its)
    page |= series("training_samples_per_second", 32, **its)
    for host in ("n1", "n2"):
        for name in ("tx_packets", "retransmitted_packets", "retransmission_timeouts", "unresponsive_remotes"):
            page |= series(f"efa_node_{name}_total", t * 10.0, **target(host))
        port = {"device": "mlx5_0", "port": "1", **target(host)}
        page |= series("infiniband_port_up", float(t < 100 or host == "n1"), **port)
        page |= series("infiniband_tx_bytes_total", t * 1e9, **port) | series(
            "infiniband_rx_bytes_total", t * 1e9, **port
        )
        page |= series("infiniband_node_errors_total", t * 1.0, error="symbol", **target(host))
    return page


def _more_of_the_node(t: int) -> Page:
    ours = target("n2")
    page = series("slurm_gpu_job_info", 1, gpu="0", uuid="GPU-n2-0", job_id="41", run_id="r1", **ours)
    page |= series("trainwarden_collector_stuck", 1, collector="nvidia", device="gpu2", call="nvmlInit", **ours)
    page |= series("trainwarden_collector_success", 0, collector="nvidia", **ours)
    return page | series("gpu_xid_errors_total", 3, gpu="", uuid="", xid="79", **ours)


def _remediator(t: int) -> Page:
    ours = target("head", "trainwarden-remediator", 9746)
    of_run = {"run_id": "r1", "job_id": "41", "attempt": "0", "failure_mode": "stall", **ours}
    page = series("up", 1, **ours) | series(f"{_P}_loop_success", 1, **ours)
    for name in ("loop_last_success", "poll_last_success", "watchdog_last_received", "webhook_last_received"):
        page |= series(f"{_P}_{name}_timestamp_seconds", t - t % 60, **ours)
    page |= series(f"{_P}_unable_to_judge", 1, source="slurm", **ours)
    page |= series(f"{_P}_readings_total", t / 5, source="slurm", outcome="unknown", **ours)
    for state in ("PROPOSED", "IN_DOUBT", "DONE"):
        page |= series(f"{_P}_incidents", 1, state=state, **ours)
    page |= series(f"{_P}_incident_timestamp_seconds", 60, state="IN_DOUBT", **of_run)
    page |= series(f"{_P}_alert_pending_timestamp_seconds", 60, run_id="r1", alert="TrainRunStalled", **ours)
    page |= series(f"{_P}_escalation_info", 1, reason="two restarts did not help", **of_run)
    page |= series(f"{_P}_refusal_info", 1, reason="the policy restarts no oom", **of_run)
    page |= series(f"{_P}_decisions_total", t // 30, action="restart", failure_mode="stall", **ours)
    ended = t // 60
    for outcome in ("recovered", "failed"):
        page |= series(f"{_P}_restarts_total", ended, outcome=outcome, **ours)
    for edge, count in (("60", ended), ("300", 2 * ended), ("+Inf", 2 * ended)):
        page |= series(f"{_P}_recovery_seconds_bucket", count, le=edge, **ours)
    page |= series(f"{_P}_budget_left", 1, run_id="r1", failure_mode="stall", **ours)
    page |= series(f"{_P}_recoverable", 0, run_id="r1", job_id="41", scheduler="slurm", reason="no requeue", **ours)
    page |= series(f"{_P}_held_jobs", 1, scheduler="slurm", incident="open", **ours)
    for outcome in ("restarted", "left"):
        page |= series(f"{_P}_scores", 3, policy="observed", would="restart", outcome=outcome, **ours)
    for name in ("saved", "lost"):
        page |= series(f"{_P}_gpu_hours_{name}_total", 8 * ended, **ours)
    page |= series(f"{_P}_messages_total", 4, channel="slack", outcome="sent", **ours)
    return page | series(f"{_P}_messages_pending", 1, channel="slack", **ours)


def _finetuning(t: int) -> Page:
    page: Page = {}
    for job, status in (("a", 1), ("b", 3 if t >= 1040 else 1), ("c", 0), ("d", 2), ("e", 4)):
        its = {"job_name": job, "model_id": "llama", "method": "lora", **target("n1")}
        page |= series("finetuning_job_status", status, **its)
        for name, value in (
            ("training_epoch", 1), ("training_step", t), ("training_progress", 40), ("learning_rate", 1e-4),
            ("samples_per_second", 8), ("tokens_per_second", 4e4), ("gpu_utilization_percent", 91),
            ("gpu_memory_used_bytes", 7e10), ("gpu_memory_total_bytes", 8e10), ("checkpoints_total", 2),
            ("checkpoint_size_bytes_sum", 2e9), ("checkpoint_size_bytes_count", 2),
            ("info_file_timestamp_seconds", t),
        ):  # fmt: skip
            page |= series(f"finetuning_{name}", value, **its)
        page |= series("finetuning_train_loss", 2.1, epoch="1", **its)
        page |= series("finetuning_info_file_errors_total", t // 60, reason="missing", **its)
        if status == 2:
            page |= series("finetuning_validation_passed", 1, check="training_loss", **its)
            page |= series("finetuning_validation_score", 0.5, check="training_loss", **its)
            page |= series("finetuning_validation_timestamp_seconds", 60, **its)
        for edge, count in (("600", 1), ("+Inf", 2)):
            page |= series("finetuning_job_duration_seconds_bucket", count, le=edge, **its)
    return page
