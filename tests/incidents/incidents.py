"""The incidents: what is scraped from second to second, what must be noticed of it, and by when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.incidents.fleet import (
    RUN,
    down,
    efa,
    exporter,
    fleet,
    gpus,
    host_health,
    labelled,
    last,
    lost_node,
    merged,
    series,
    slurm,
    target,
    training,
    without,
)
from tests.rules.promtool import LIVE, Page, run

# When the fault happens.
T = 120
# When it happens where ten minutes of history decide.
LATER = 720
OOM = {"attempt": "0", "error_type": "oom", "failure": "cuda_oom", "subsystem": "memory", "severity": "critical"}
HOST_OOM = {
    "attempt": "0",
    "error_type": "host_oom",
    "failure": "host_oom",
    "subsystem": "memory",
    "severity": "critical",
}
PREEMPTED = {
    "attempt": "0",
    "error_type": "preempted",
    "failure": "preempted",
    "subsystem": "scheduler",
    "severity": "warning",
}


@dataclass(frozen=True)
class Incident:
    """One incident.

    Attributes:
        name: what happens.
        page: what is scraped at each second.
        within: the alerts that must fire, and how many seconds after the fault at the latest.
        also: alerts that may fire beside them.
        seconds: how long the incident is watched.
        begins: when the fault happens.
        restarts: whether an alert with `remediate="true"` must, or must not, be among those that fire.
        stall: the stall budget, in seconds, of the phase in which the run hangs.
        faulty: the clusters and runs that such an alert may be about.
        quick: whether `make test` plays it too; the others are for `make test-nightly`.
    """

    name: str
    page: Callable[[int], Page]
    within: Mapping[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    seconds: int = 360
    begins: int = T
    restarts: bool = False
    stall: int = 30
    faulty: frozenset[tuple[str, str]] = frozenset({("", "r1")})
    quick: bool = False

    @property
    def acted_on(self) -> tuple[str, int] | None:
        """The alert that restarts the run, and in how many seconds it must fire; None where nothing restarts it."""
        acting = [each for each in ("TrainRunFailed", "TrainRunStalled", "TrainRunTimedOut") if each in self.within]
        return (acting[0], 30 if acting[0] == "TrainRunFailed" else self.stall + 30) if self.restarts else None


def _after(t: int, healthy: Page, broken: Page, since: int = T) -> Page:
    return broken if t >= since else healthy


def _hang(t: int) -> Page:
    stopped = training(t, stopped=T)
    return fleet(
        t,
        training=stopped,
        n1_gpus=gpus(t, "n1", units=0.0 if t > T else 0.45, watts=125 if t > T else 640),
        n2_gpus=gpus(t, "n2", units=0.0 if t > T else 0.45, watts=125 if t > T else 640),
        n1_efa=efa(t, "n1", stopped=T),
        n2_efa=efa(t, "n2", stopped=T),
    )


def _failed(t: int, failure: Mapping[str, str]) -> Page:
    return training(t) if t < T else training(t, stopped=T, beats=T, state="failed", end=T, failure=failure)


def _idle_gpus(t: int, since: int = T) -> dict[str, Page]:
    broken = {"busy": 0.0, "units": 0.0, "watts": 90.0}
    return {f"{host}_gpus": gpus(t, host, **(broken if t > since else {})) for host in ("n1", "n2")}  # type: ignore[arg-type]  # all three are floats


def _moved(t: int) -> Page:
    """n1 is exchanged: the run goes on as attempt 1 on n2; later n1's exporter comes back with its old folder."""
    if t < T:
        return fleet(t)
    ended = T + 40
    second = training(
        t, host="n2", attempt=1, start=ended, phase_start=ended, first_step=60, rank_hosts=("n2", "n2"), job_id="41"
    )
    old = without(training(t, stopped=T, beats=T, rank_hosts=("n1", "n1")), 'instance="n2:9745"')
    page = fleet(t, training=training(t, stopped=T, beats=T) if t < ended else second)
    if t < T + 180:
        return lost_node(page, "n1")
    return merged([page, old])


def _storm(t: int) -> Page:
    """500 runs of two ranks on one node, as their exporter shows them without what no stall is judged by."""
    runs = [
        run(t, run_id=f"s{number}", job_id=str(500 + number), step=T, ranks={0: LIVE, 1: LIVE}) for number in range(500)
    ]
    return merged([*runs, exporter(t, "n1")])


def _two_clusters(t: int) -> Page:
    failed = labelled(fleet(t, training=_failed(t, OOM)), cluster="east")
    return failed | labelled(fleet(t), cluster="west")


def _livelock(t: int) -> Page:
    """Each attempt repeats the same steps and dies: attempts of 120 s, none of which passes step 60."""
    attempt, began = t // 120, t - t % 120
    return fleet(
        t, training=training(t, attempt=attempt, start=began + 1, phase_start=began, high_water=60, first_step=0)
    )


def _flapping_rank(t: int) -> Page:
    """A rank falls silent for 40 s again and again, and the stale threshold is 60 s."""
    beat = t if t % 50 < 10 else t - t % 50 + 9
    return fleet(t, training=training(t, rank_beats={3: beat}))


INCIDENTS = [
    Incident("a healthy fleet", fleet, seconds=1200),
    Incident(
        "a hang in a collective: all GPUs busy, no unit at work",
        _hang,
        {"TrainRunStalled": 50, "TrainRunCollectiveHung": 120},
        also=frozenset({"TrainRunDegraded"}),
        restarts=True,
        quick=True,
    ),
    Incident(
        "a hang, with a budget relative to the run's own steps: three times their 99th percentile of 4 s",
        lambda t: _hang(t) | {key: 12.0 for key in _hang(t) if key.startswith("training_stall_budget_seconds")},
        {"TrainRunStalled": 42, "TrainRunCollectiveHung": 120},
        also=frozenset({"TrainRunDegraded"}),
        restarts=True,
        stall=12,
    ),
    Incident(
        "the run crashes: out of GPU memory",
        lambda t: fleet(t, training=_failed(t, OOM)),
        {"TrainRunFailed": 20},
        restarts=True,
        quick=True,
    ),
    Incident(
        "the kernel kills the run: out of host memory",
        lambda t: fleet(t, training=_failed(t, HOST_OOM), n1_health=host_health(t, "n1", oom_at=T)),
        {"TrainRunFailed": 20, "TrainNodeOomKill": 60},
        restarts=True,
    ),
    Incident(
        "the node of rank 0 dies with its exporter",
        lambda t: _after(
            t,
            fleet(t),
            lost_node(fleet(t, training=training(t, stopped=T, beats=T), slurm=slurm(t, nodes={"n1": "down"})), "n1"),
        ),
        {"TrainExporterDown": 215, "TrainRunTimedOut": 120, "TrainSlurmNodeFailed": 60},
        also=frozenset({"TrainRankSilent", "TrainMonitoringBlind"}),
    ),
    Incident(
        "a worker's node dies with its exporter, and the others wait",
        lambda t: _after(
            t,
            fleet(t),
            lost_node(fleet(t, training=training(t, stopped=T), n1_gpus=gpus(t, "n1", units=0.0, watts=125)), "n2"),
        ),
        {"TrainRunStalled": 50, "TrainExporterDown": 215, "TrainRankSilent": 120},
        also=frozenset({"TrainRunCollectiveHung", "TrainRunDegraded"}),
        restarts=True,
        quick=True,
    ),
    Incident(
        "a slow node: its rank takes twice the time before the collective",
        lambda t: fleet(
            t,
            training=training(
                t,
                step_seconds=2.0 if t < 1200 else 3.4,
                sections={
                    rank: {"data": 0.1, "forward": 0.6 if rank != 3 or t < 1200 else 1.6, "backward": 1.2}
                    for rank in range(4)
                },
            ),
            n2_gpus=gpus(t, "n2", throttled_since=1200),
        ),
        {"TrainRunStraggler": 900, "TrainGpuThrottled": 900},
        also=frozenset({"TrainRunSlow"}),
        begins=1200,
        seconds=2400,
    ),
    Incident(
        "NCCL falls back to sockets",
        lambda t: fleet(t, training=training(t, transport_ok=t < T)),
        {"TrainNcclFallback": 180},
    ),
    Incident(
        "the loss is no number and the run trains on",
        lambda t: fleet(t, training=training(t, loss=2.0 if t < LATER else None, nonfinite=max(0, t - LATER) // 2)),
        {"TrainRunNonFinite": 240},
        begins=LATER,
        seconds=1200,
    ),
    Incident(
        "saving a checkpoint hangs on its file system",
        lambda t: fleet(
            t,
            training=training(t)
            if t < T
            else training(t, stopped=T, phase="checkpoint", phase_start=T, answering=False),
            **_idle_gpus(t),
        ),
        {"TrainRunStalled": 150, "TrainRunCheckpointHung": 210},
        also=frozenset({"TrainFilesystemNotAnswering", "TrainFilesystemSlow", "TrainRunGpusIdle", "TrainRunDegraded"}),
        restarts=True,
        stall=120,
    ),
    Incident(
        "a long compile within its budget",
        lambda t: fleet(
            t,
            training=training(t, stopped=1, phase="init", phase_start=t - t % 80, start=1)
            if t < 400
            else training(t, start=1, phase_start=400, first_step=0),
            **_idle_gpus(t, 0 if t < 400 else 10**6),
        ),
        seconds=600,
    ),
    Incident(
        "an evaluation pause within its budget",
        lambda t: fleet(
            t, training=training(t) if t < T or t > T + 100 else training(t, stopped=T, phase="eval", phase_start=T)
        ),
    ),
    Incident(
        "the data loader stands still: GPUs idle",
        lambda t: fleet(
            t,
            training=training(t, stopped=T),
            **_idle_gpus(t),
            n1_efa=efa(t, "n1", stopped=T),
            n2_efa=efa(t, "n2", stopped=T),
        ),
        {"TrainRunStalled": 50, "TrainRunDataStalled": 150},
        also=frozenset({"TrainRunGpusIdle", "TrainRunDegraded"}),
        restarts=True,
    ),
    Incident(
        "an exporter dies, its run lives",
        lambda t: _after(t, fleet(t), lost_node(fleet(t), "n2")),
        {"TrainExporterDown": 215, "TrainRankSilent": 180},
        also=frozenset({"TrainRunDegraded"}),
    ),
    Incident(
        "a DaemonSet rolls: each exporter is away for 20 s",
        lambda t: (
            lost_node(fleet(t), "n1")
            if T <= t < T + 20
            else lost_node(fleet(t), "n2")
            if T + 20 <= t < T + 40
            else fleet(t)
        ),
        quick=True,
    ),
    Incident(
        "Prometheus restarts while a run has failed: nothing is scraped for 40 s",
        lambda t: {} if T + 60 <= t < T + 100 else fleet(t, training=_failed(t, OOM)),
        {"TrainRunFailed": 20},
        restarts=True,
    ),
    Incident(
        "S3 does not answer: nothing of the run is accused",
        lambda t: fleet(
            t,
            s3=merged(
                [
                    without(
                        training(last_seen(t), run_id="s3run", job_id="", host="head", rank_hosts=()),
                        "training_gpu_info",
                    ),
                    series("training_run_observed_timestamp_seconds", last(t, T), run_id="s3run", **target("head")),
                    series("trainwarden_s3_up", float(t < T), url="s3://b/p", **target("head")),
                ]
            ),
        ),
        {"TrainS3Unreachable": 600, "TrainRunUnobserved": 360},
        seconds=900,
    ),
    Incident(
        "a host's clock is 7 hours behind and its run fails",
        lambda t: fleet(
            t,
            training=skewed(_failed(t, OOM), -7 * 3600),
            n1_exporter=skewed(exporter(t, "n1"), -7 * 3600),
            n1_health=host_health(t, "n1", synchronized=False, offset=-25200.0),
        ),
        {"TrainRunFailed": 30, "TrainNodeClockSkewed": 900},
        begins=T,
        seconds=1080,
        restarts=True,
    ),
    Incident(
        "the job is requeued and waits in the queue",
        lambda t: fleet(
            t,
            training=training(t) if t < T else training(t, stopped=T, beats=T),
            slurm=slurm(t)
            if t < T
            else slurm(t, state="pending", restarts=1, reason="Resources", nodes={"n1": "idle", "n2": "idle"}),
        ),
        seconds=600,
    ),
    Incident(
        "the job is preempted",
        lambda t: fleet(
            t,
            training=_failed(t, PREEMPTED),
            slurm=slurm(t) if t < T else slurm(t, state="preempted", nodes={"n1": "allocated", "n2": "allocated"}),
        ),
        {"TrainRunFailed": 20},
        also=frozenset({"TrainSlurmJobPreempted"}),
        restarts=True,
    ),
    Incident(
        "the run finishes",
        lambda t: fleet(
            t,
            training=training(t) if t < T else training(t, stopped=T, beats=T, state="succeeded", end=T, phase="done"),
            slurm=slurm(t) if t < T + 5 else slurm(t, state="completed", nodes={"n1": "idle", "n2": "idle"}),
            **{
                f"{host}_gpus": without(gpus(t, host, busy=0, units=0, watts=70), "training_gpu_info")
                if t > T
                else gpus(t, host)
                for host in ("n1", "n2")
            },
        ),
        {"TrainRunSucceeded": 20},
    ),
    Incident(
        "livelock: every attempt repeats the same steps",
        _livelock,
        {"TrainRunLivelocked": 300},
        begins=120,
        seconds=900,
        also=frozenset({"TrainRunGoodputLow", "TrainRemediationIneffective", "TrainCheckpointOverdue"}),
    ),
    Incident(
        "a log storm: the log grows 20 MB a second faster than it is read, and the run trains on",
        lambda t: fleet(
            t, backlog=series("trainwarden_log_lag_bytes", 20e6 * max(0, t - T), run_id=RUN, **target("n1"))
        ),
        within={"TrainLogsBehind": 330},
        seconds=540,
    ),
    Incident(
        "the log falls silent, the steps go on",
        lambda t: fleet(t, training=training(t, log_written=T)),
        {"TrainLogSilent": 720},
        seconds=1080,
    ),
    Incident("a rank's heartbeat flaps below the threshold", _flapping_rank, seconds=600),
    Incident(
        "one rank is silent, the others train on",
        lambda t: fleet(t, training=training(t, rank_beats={3: T})),
        {"TrainRankSilent": 130},
        also=frozenset({"TrainRunDegraded"}),
    ),
    Incident(
        "the process of a rank is gone and the others wait",
        lambda t: fleet(
            t,
            training=training(t, stopped=T, rank_states={3: "gone" if t > T else "alive"}, rank_beats={3: T}),
            n1_gpus=gpus(t, "n1", units=0.0 if t > T else 0.45, watts=125 if t > T else 640),
            n2_gpus=gpus(t, "n2", units=0.0 if t > T else 0.45, watts=125 if t > T else 640),
            n1_efa=efa(t, "n1", stopped=T),
            n2_efa=efa(t, "n2", stopped=T),
        ),
        {"TrainRunStalled": 50, "TrainRankProcessGone": 90, "TrainRankSilent": 130},
        also=frozenset({"TrainRunCollectiveHung", "TrainRunDegraded"}),
        restarts=True,
    ),
    Incident(
        "no step is reported and all GPUs compute: an evaluation without its phase",
        lambda t: fleet(t, training=training(t, stopped=T)),
        {"TrainRunStalled": 60, "TrainRunStepsUnreported": 120},
        also=frozenset({"TrainRunDegraded"}),
        quick=True,
    ),
    Incident(
        "a GPU is lost",
        lambda t: fleet(t, n2_gpus=gpus(t, "n2", lost=(1,) if t > T else ())),
        {"TrainGpuLost": 75},
    ),
    Incident("an EFA port goes down", lambda t: fleet(t, n1_efa=efa(t, "n1", down_since=T)), {"TrainEfaPortDown": 120}),
    Incident(
        "one run fails in one of two clusters that use the same run id",
        _two_clusters,
        {"TrainRunFailed": 20},
        restarts=True,
        faulty=frozenset({("east", "r1")}),
    ),
    Incident(
        "500 runs stall at once",
        _storm,
        {"TrainRunStalled": 50},
        seconds=180,
        restarts=True,
        faulty=frozenset(("", f"s{number}") for number in range(500)),
    ),
    Incident(
        "a run moves to another node, and the old exporter comes back with the old folder",
        _moved,
        also=frozenset({"TrainExporterDown", "TrainRankSilent"}),
        seconds=600,
    ),
    Incident(
        "the collector of runs hangs while the run dies",
        lambda t: fleet(t, training=training(last_seen(t)), n1_exporter=exporter(t, "n1", read={"runs": T})),
        {"TrainRunUnobserved": 360, "TrainCollectorFailing": 400},
        also=frozenset({"TrainCollectorStuck", "TrainLogSilent", "TrainRankSilent", "TrainRunDegraded"}),
        seconds=720,
    ),
    Incident(
        "the remediator is down",
        lambda t: fleet(t, remediator=down("head", "trainwarden-remediator", 9746) if t > T else merged([fleet(t)])),
        {"TrainRemediatorDown": 210},
        seconds=480,
    ),
]


def last_seen(t: int) -> int:
    """Return the second whose values are still shown once nothing is read any more."""
    return min(t, T)


def skewed(page: Page, seconds: float) -> Page:
    """Return the page of a host whose clock is off by `seconds`."""
    return {name: value + seconds if "timestamp_seconds" in name else value for name, value in page.items()}
