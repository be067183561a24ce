"""What must be raised where exporters, schedulers, clocks and logs do not show the same, or show nothing."""

from __future__ import annotations

from tests.rules.expected import (
    degraded,
    failed,
    lacking,
    log_silent,
    never_started,
    node_failed,
    rank_silent,
    stalled,
    succeeded,
    timed_out,
    unobserved,
)
from tests.rules.promtool import LIVE, Page, Scenario, in_cluster, observed, present, ranks_of, run

HOUR = 3600
BEHIND = 7 * HOUR
OOM = {"attempt": "0", "error_type": "oom", "failure": "cuda_oom", "subsystem": "cuda", "severity": "critical"}
SCHEDULER = 'run_id="r1",job_id="{job}",instance="head:9745",job="trainwarden-exporter"'


def silent_since(second: float, t: int, **more: object) -> Page:
    return run(t, metadata=second, progress=second, step=second, **more)  # type: ignore[arg-type]  # keywords of run()


def job(state: str, job_id: str = "41", start: float | None = None) -> Page:
    """What the head node's exporter shows of a SLURM job."""
    labels = SCHEDULER.format(job=job_id)
    page = {f'slurm_job_state{{{labels},state="{each}"}}': float(each == state) for each in ("pending", "running")}
    page |= {} if start is None else {f"slurm_job_start_timestamp_seconds{{{labels}}}": start}
    if state in {"cancelled", "timeout", "node_fail"}:
        page[f'slurm_job_end_info{{{labels},state="{state}"}}'] = 1
    return page


def behind(page: Page) -> Page:
    """The same from a host whose clock is hours behind everybody else's."""
    return {series: value - BEHIND if "timestamp" in series else value for series, value in page.items()}


def worker(t: int, *, until: float = LIVE, ranks: tuple[int, ...] = (8, 9)) -> Page:
    """What the exporter of another node shows: ranks alone."""
    if t > until:
        return {}
    return present(ranks_of(t, "r1", "n2:9745", "n2", dict.fromkeys(ranks, LIVE))) | {observed("n2:9745"): t}


def moved(t: int, *, away: float = LIVE, **more: object) -> Page:
    """A run that moved from n1, where an old folder says running, to n2, whose exporter is away from then on."""
    page = silent_since(20, t, phase="idle")
    if 60 <= t < away:
        page |= run(t, instance="n2:9745", host="n2", job_id="42", attempt=1, start=60, phase_start=60, **more)  # type: ignore[arg-type]  # keywords of run()
    return page


def logs(t: int, written: float, silence: float = 120) -> Page:
    """What the log reader shows of a run."""
    labels = 'run_id="r1",instance="n1:9745",job="trainwarden-exporter"'
    return {
        f"training_log_last_write_timestamp_seconds{{{labels}}}": min(t, written),
        f"training_log_silence_threshold_seconds{{{labels}}}": silence,
        'trainwarden_collector_last_success_timestamp_seconds{collector="logs",instance="n1:9745"}': t,
    }


def known_by_log(t: int, written: float, *, step: float = 10) -> Page:
    labels = 'run_id="r1",instance="n1:9745",job="trainwarden-exporter"'
    return logs(t, written) | {f"training_step{{{labels}}}": step, f"training_steps_target{{{labels}}}": 50}


def counting(t: int, until: float = LIVE) -> Page:
    """A rank that counts steps."""
    place = 'run_id="r1",host="n1",instance="n1:9745",job="trainwarden-exporter"'
    return {f"training_host_rank_steps{{{place}}}": min(t, until)}


LOG_ONLY = {
    key: value for key, value in log_silent()[1].items() if key not in {"job_id", "attempt", "scheduler", "node"}
}

DOUBT = [
    Scenario(
        "an old record does not count while the exporter of the newer attempt is away",
        lambda t: moved(t, away=120),
        {100: [], 125: [], 170: [], 230: [timed_out(attempt="1", node="n2", job_id="42", remediate="false")]},
    ),
    Scenario(
        "nor when the exporter that shows it starts again meanwhile",
        lambda t: {} if 130 <= t < 150 else moved(t, away=120),
        {125: [], 150: [], 170: []},
    ),
    Scenario(
        "a record that lives counts, whatever its clock says about its start",
        lambda t: (
            (run(t, instance="n2:9745", host="n2", start=500, phase_start=20) if t < 100 else {})
            | (run(t, job_id="42", start=90, phase_start=90, step=200) if t >= 90 else {})
        ),
        {150: [], 235: [stalled(job_id="42")]},
    ),
    Scenario(
        "a requeued job waits in the queue: it is neither silent nor stalled",
        lambda t: silent_since(60, t) | job("running" if t < 70 else "pending"),
        {95: [], 125: [], 400: []},
    ),
    Scenario(
        "a job that was just started again has not written its record yet",
        lambda t: silent_since(60, t) | (job("pending") if t < 200 else job("running", start=200)),
        {195: [], 300: [], 700: [], 900: [timed_out()]},
    ),
    Scenario(
        "the job that is next in the queue does not speak for the one that runs",
        lambda t: silent_since(60, t, phase="idle") | job("running") | job("pending", job_id="99"),
        {125: [timed_out()]},
    ),
    Scenario(
        "a silent run whose job the scheduler has ended is for a person",
        lambda t: silent_since(60, t, phase="idle") | job("running" if t < 70 else "cancelled"),
        {125: [timed_out(subsystem="distributed", remediate="false")]},
    ),
    Scenario(
        "a job that failed with its node is for the machine",
        lambda t: silent_since(60, t, phase="idle") | job("running" if t < 70 else "node_fail"),
        {125: [timed_out(), node_failed()]},
    ),
    Scenario(
        "an exporter that is away for 20 s ends no failure",
        lambda t: {"up": 0} if 60 <= t < 80 else run(t, state="failed", end=30, failure=OOM),
        {each: [failed(error_type="oom", subsystem="cuda")] for each in (55, 60, 75, 80, 85)},
    ),
    Scenario(
        "nor a stall",
        lambda t: {"up": 0} if 100 <= t < 120 else run(t, step=60),
        {each: [stalled()] for each in (95, 100, 115, 120, 125)},
    ),
    Scenario(
        "one that stays away ends it after a minute",
        lambda t: {"up": 0} if t >= 60 else run(t, state="failed", end=30, failure=OOM),
        {110: [failed(error_type="oom", subsystem="cuda")], 130: []},
    ),
    Scenario(
        "a new attempt ends the failure at once, even after an absence",
        lambda t: (
            run(t, state="failed", end=30)
            if t < 60
            else run(t, attempt=1, job_id="42", start=80, phase_start=80)
            if t >= 80
            else {"up": 0}
        ),
        {75: [failed()], 80: [], 85: []},
    ),
    Scenario(
        "runs that are not read while their exporter answers call a person, by name",
        lambda t: run(t, read=62 if t < 450 else LIVE),
        {300: [], 400: [unobserved()], 445: [unobserved()], 520: []},
    ),
    Scenario(
        "and so they do in a cluster",
        lambda t: in_cluster("a", run(t, read=62)),
        {400: [unobserved(cluster="a")]},
    ),
    Scenario(
        "several of one exporter are one alert",
        lambda t: run(t, read=62) | run(t, run_id="r2", read=62),
        {400: [lacking(unobserved(), "run_id", "node")]},
    ),
    Scenario(
        "runs that have ended need not be read",
        lambda t: run(t, state="cancelled", end=10, read=62),
        {400: []},
    ),
    Scenario(
        "a worker's node dies with its exporter",
        lambda t: run(t, ranks={0: LIVE}) | worker(t, until=60),
        {120: [], 155: [rank_silent(node="n2")], 600: [rank_silent(node="n2")]},
    ),
    Scenario(
        "and is back in time",
        lambda t: run(t, ranks={0: LIVE}) | ({} if 60 < t < 110 else worker(t)),
        {105: [], 115: [], 300: []},
    ),
    Scenario(
        "two of its nodes die: one alert that names neither as the only one",
        lambda t: run(t) | worker(t, until=60) | _renamed(worker(t, until=60)),
        {155: [lacking(rank_silent(), "node")]},
    ),
    Scenario(
        "one a moment after the other: the first is never called the only one",
        lambda t: run(t) | worker(t, until=60) | _renamed(worker(t, until=70)),
        {140: [], 165: [lacking(rank_silent(), "node")]},
    ),
    Scenario(
        "a node whose ranks come up one by one is missed by none of its earlier names",
        lambda t: run(t) | worker(t, ranks=(8,) if t < 30 else (8, 9)),
        {300: []},
    ),
    Scenario(
        "the nodes of an earlier attempt are not missed",
        lambda t: (
            run(t) | worker(t) if t < 60 else run(t, attempt=1, job_id="42", start=60, phase_start=60, ranks={0: LIVE})
        ),
        {200: [], 400: []},
    ),
    Scenario(
        "a failure on a host whose clock is hours behind",
        lambda t: behind(run(t, state="failed", end=30, failure=OOM)),
        {60: [failed(error_type="oom", subsystem="cuda")]},
    ),
    Scenario(
        "what is no failure names its cluster too",
        lambda t: (
            in_cluster("a", run(t, state="succeeded", end=30))
            | in_cluster("b", run(t, metadata=60))
            | in_cluster("c", run(t, state="pending", metadata=None, progress=None, step=None, phase_start=None))
        ),
        {125: [succeeded(cluster="a"), degraded(cluster="b"), never_started(cluster="c")]},
    ),
    Scenario(
        "a success there",
        lambda t: behind(run(t, state="succeeded", end=30)),
        {60: [succeeded()]},
    ),
    Scenario(
        "a run that vanished there is not older than it is",
        lambda t: behind(run(t)) if t <= 60 else {"up": 0},
        {110: [], 160: [timed_out(remediate="false")]},
    ),
    Scenario(
        "its log grows after its last step: it stands still for a person",
        lambda t: run(t, step=60) | logs(t, LIVE),
        {95: [stalled(remediate="false")], 200: [stalled(remediate="false")]},
    ),
    Scenario(
        "its log ended with its last step",
        lambda t: run(t, step=60) | logs(t, 65),
        {95: [stalled()]},
    ),
    Scenario(
        "another rank counts steps",
        lambda t: run(t, step=60, stall={"train": 100}) | counting(t),
        {165: [stalled(remediate="false")]},
    ),
    Scenario(
        "no rank counts steps",
        lambda t: run(t, step=60, stall={"train": 100}) | counting(t, until=61),
        {165: [stalled()]},
    ),
    Scenario(
        "the log of a run that trains falls silent",
        lambda t: run(t) | logs(t, 60 if t < 220 else LIVE),
        {175: [], 185: [log_silent()], 215: [log_silent()], 290: []},
    ),
    Scenario(
        "the log of an evaluation may be silent",
        lambda t: run(t, phase="eval", stall={"eval": 900}) | logs(t, 60),
        {300: []},
    ),
    Scenario(
        "the log of a run that has ended is silent",
        lambda t: run(t, state="cancelled", end=60) | logs(t, 60),
        {300: []},
    ),
    Scenario(
        "a run that is known by its log alone falls silent",
        lambda t: known_by_log(t, 60),
        {175: [], 185: [("TrainLogSilent", LOG_ONLY)]},
    ),
    Scenario(
        "one that has reached its last step is done",
        lambda t: known_by_log(t, 60, step=50),
        {300: []},
    ),
    Scenario(
        "a log that fell silent long ago is nobody's business",
        lambda t: known_by_log(t, -7 * HOUR),
        {100: []},
    ),
]


def _renamed(page: Page) -> Page:
    return {series.replace('"n2', '"n3').replace('"8,9"', '"16,17"'): value for series, value in page.items()}
