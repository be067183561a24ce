"""What must raise an alert, and what must not."""

from __future__ import annotations

from tests.rules.promtool import LIVE, Alert, Page, Scenario, observed, run

IDENTITY = {"run_id": "r1", "job_id": "41", "attempt": "0", "scheduler": "slurm", "node": "n1"}
HANG = {"severity": "critical", "error_type": "hang"}
HOUR = 3600
OOM = {"attempt": "0", "error_type": "oom", "failure": "cuda_oom", "subsystem": "cuda", "severity": "critical"}
# A loop that may be silent for longer than a heartbeat.
PATIENT = {"train": 600.0, "eval": 600.0}


def failed(**labels: str) -> Alert:
    return "TrainRunFailed", {
        **IDENTITY,
        "severity": "critical",
        "failure_mode": "crash",
        "remediate": "true",
        **labels,
    }


def timed_out(**labels: str) -> Alert:
    ours = {"failure_mode": "timeout", "subsystem": "monitoring", "remediate": "true"}
    return "TrainRunTimedOut", {**IDENTITY, **HANG, **ours, **labels}


def stalled(**labels: str) -> Alert:
    ours = {"failure_mode": "stall", "subsystem": "distributed", "remediate": "true"}
    return "TrainRunStalled", {**IDENTITY, **HANG, **ours, **labels}


def never_started(**labels: str) -> Alert:
    ours = {"severity": "warning", "failure_mode": "timeout", "remediate": "false"}
    return "TrainRunNeverStarted", {**IDENTITY, **ours, **labels}


def degraded(**labels: str) -> Alert:
    ours = {"severity": "warning", "failure_mode": "stall", "remediate": "false"}
    return "TrainRunDegraded", {**IDENTITY, **ours, **labels}


def succeeded(**labels: str) -> Alert:
    ours = {"severity": "info", "failure_mode": "success", "remediate": "false"}
    return "TrainRunSucceeded", {**IDENTITY, **ours, **labels}


def restarted(t: int, *, after: int = 60, **before: object) -> Page:
    """A run whose attempt 1 starts at second `after`, on the same host."""
    if t < after:
        return run(t, **before)  # type: ignore[arg-type]  # the keywords of run()
    return run(t, attempt=1, job_id="42", start=after, phase_start=after)


def ahead(page: Page, seconds: int) -> Page:
    """The same from a training whose clock is ahead of everybody else's."""
    beats = ("training_heartbeat", "training_rank_heartbeat", "training_step_timestamp", "training_phase_start")
    return {series: value + seconds if series.startswith(beats) else value for series, value in page.items()}


GENERAL = [
    Scenario("a healthy run raises nothing", lambda t: run(t, ranks={0: LIVE, 1: LIVE}), {0: [], 60: [], 200: []}),
    Scenario("no data raises nothing", lambda _: {"up": 1}, {200: []}),
    Scenario(
        "a cancelled run raises nothing, however long it is silent",
        lambda t: run(t, state="cancelled", end=10, metadata=10, progress=10, step=10, ranks={0: 10}),
        {200: []},
    ),
    Scenario(
        "a clock that is ahead raises nothing",
        lambda t: ahead(run(t, ranks={0: LIVE}), 1000),
        {200: []},
    ),
    Scenario(
        "a host whose clock is far behind Prometheus' raises nothing while its run is healthy",
        lambda t: {series: value - 5000 if "timestamp" in series else value for series, value in run(t).items()},
        {200: []},
    ),
    Scenario(
        "an exporter that could not read for long raises nothing that restarts a run",
        lambda t: run(t, metadata=60, progress=60, step=60, read=62),
        {200: []},
    ),
    Scenario(
        "a run on another host than before, whose old folder says failed and silent, is judged by the new one",
        lambda t: (
            run(t, state="failed", end=5, metadata=5, progress=5, step=5, failure=OOM)
            | run(t, instance="n2:9745", host="n2", attempt=1, start=20, phase_start=20)
        ),
        {100: [], 200: []},
    ),
    Scenario(
        "a run that was cancelled on another host than where an old folder says running",
        lambda t: (
            run(t, metadata=5, progress=5, step=5)
            | run(
                t,
                instance="n2:9745",
                host="n2",
                attempt=1,
                start=20,
                phase_start=20,
                state="cancelled",
                end=30,
                metadata=30,
                progress=30,
                step=30,
            )
        ),
        {75: [], 110: []},
    ),
    Scenario(
        "a run that has moved to another host carries that host's labels",
        lambda t: (
            run(t, metadata=5, progress=5, step=5)
            | run(t, instance="n2:9745", host="n2", job_id="42", attempt=1, start=20, phase_start=20, step=60)
        ),
        {95: [stalled(attempt="1", node="n2", job_id="42")]},
    ),
    Scenario(
        "a run that two exporters show raises one alert",
        lambda t: run(t, step=60) | run(t, step=60, instance="head:9745"),
        {95: [stalled()]},
    ),
    Scenario(
        "one target that shows an old and a new attempt at once is no error",
        lambda t: run(t, attempt=0) | run(t, attempt=1, job_id="42", step=60),
        {85: []},
    ),
    Scenario(
        "a record that knows neither job nor attempt still raises alerts",
        lambda t: run(t, attempt=None, job_id="", start=None, step=60),
        {95: [("TrainRunStalled", {k: v for k, v in stalled()[1].items() if k not in {"job_id", "attempt"}})]},
    ),
    Scenario(
        "what one run does is not held against another",
        lambda t: run(t) | run(t, run_id="r2", step=60, job_id="43"),
        {95: [stalled(run_id="r2", job_id="43")]},
    ),
    Scenario(
        "one lost scrape does not resolve an alert",
        lambda t: {} if t == 110 else run(t, step=60),
        {105: [stalled()], 110: [stalled()], 115: [stalled()]},
    ),
]

STALLED = [
    Scenario(
        "a step that stands still for longer than its budget", lambda t: run(t, step=60), {90: [], 95: [stalled()]}
    ),
    Scenario(
        "the loop may even report the same step again and again",
        lambda t: run(t, step=60, progress=LIVE),
        {95: [stalled()]},
    ),
    Scenario(
        "a step that moves again resolves it",
        lambda t: run(t, step=60 if t < 120 else LIVE),
        {115: [stalled()], 140: []},
    ),
    Scenario(
        "each phase has its own budget",
        lambda t: run(t, step=60, phase="train" if t < 60 else "checkpoint", phase_start=0 if t < 60 else 60),
        {180: [], 185: [stalled()]},
    ),
    Scenario(
        "a phase without a budget never stalls",
        lambda t: run(t, step=60, progress=60, phase="train" if t < 60 else "idle", phase_start=0 if t < 60 else 60),
        {600: []},
    ),
    Scenario(
        "time spent in another phase does not count",
        lambda t: run(
            t,
            step=60,
            phase="eval" if 60 <= t < 85 else "train",
            phase_start=0 if t < 60 else 60 if t < 85 else 85,
        ),
        {115: [], 120: [stalled()]},
    ),
    Scenario(
        "times from before the attempt count as its start",
        lambda t: run(t, attempt=1, start=60, phase_start=20, step=20, progress=LIVE),
        {90: [], 95: [stalled(attempt="1")]},
    ),
    Scenario(
        "a start-up that hangs has no step yet and stalls by its phase",
        lambda t: run(t, phase="init", step=None, progress=None),
        {90: [], 95: [stalled()]},
    ),
    Scenario(
        "a train phase without any known step calls a person, not the machine",
        lambda t: run(t, step=None, progress=None),
        {30: [], 35: [stalled(remediate="false")]},
    ),
    Scenario(
        "a foreign record without steps and phase times is not judged",
        lambda t: run(t, step=None, progress=None, phase_start=None),
        {200: []},
    ),
    Scenario(
        "a new attempt ends the stall of the one before",
        lambda t: restarted(t, after=120, step=60),
        {115: [stalled()], 140: [], 200: []},
    ),
    Scenario(
        "a finished run does not stall",
        lambda t: run(t, state="succeeded", end=-2 * HOUR, step=60),
        {200: []},
    ),
]

TIMED_OUT = [
    Scenario(
        "a run whose every heartbeat is stale has timed out, and is not called stalled as well",
        lambda t: run(t, metadata=60, progress=60, step=60, ranks={0: 60, 1: 60}),
        {95: [stalled()], 120: [stalled()], 145: [timed_out()]},
    ),
    Scenario(
        "a run that is silent in a phase without a budget",
        lambda t: run(t, phase="idle", metadata=60, progress=60, step=60),
        {120: [], 125: [timed_out()]},
    ),
    Scenario(
        "heartbeats from before the attempt count as its start",
        lambda t: run(t, phase="idle", attempt=1, start=60, metadata=20, progress=20, step=20),
        {120: [], 125: [timed_out(attempt="1")]},
    ),
    Scenario(
        "a heartbeat that comes back resolves it",
        lambda t: run(t, phase="idle", metadata=60 if t < 150 else LIVE, progress=60, step=60),
        {145: [timed_out()], 170: []},
    ),
    Scenario(
        "a new attempt ends the silence of the one before",
        lambda t: restarted(t, after=150, phase="idle", metadata=60, progress=60, step=60),
        {145: [timed_out()], 170: [], 200: []},
    ),
    Scenario(
        "a run that vanished with its exporter calls a person, not the machine",
        lambda t: run(t) if t <= 60 else {"up": 0},
        {145: [], 155: [timed_out(remediate="false")], 200: [timed_out(remediate="false")]},
    ),
    Scenario(
        "and is forgotten when the exporter is back",
        lambda t: run(t) if t <= 60 or t >= 200 else {"up": 0},
        {195: [timed_out(remediate="false")], 205: []},
    ),
    Scenario(
        "an exporter that comes back a moment too late is no reason to call anybody",
        lambda t: run(t) if t <= 60 or t >= 140 else {"up": 0},
        {125: [], 135: [], 140: [], 200: []},
    ),
    Scenario(
        "a run that had finished before its exporter went is left alone",
        lambda t: {"up": 0} if t > 60 else run(t, state="running" if t < 30 else "cancelled", end=30),
        {200: []},
    ),
    Scenario(
        "a run that failed, came back and then vanished with its exporter",
        lambda t: {"up": 0} if t > 60 else run(t, state="failed" if t < 30 else "running", end=20 if t < 30 else None),
        {155: [timed_out(remediate="false")]},
    ),
    Scenario(
        "a run whose old host went away while a new one shows it",
        lambda t: (
            (run(t) if t <= 60 else {})
            | (run(t, instance="n2:9745", host="n2", attempt=1, start=60, phase_start=60) if t >= 60 else {})
        ),
        {200: []},
    ),
]

FAILED = [
    Scenario(
        "a failed run carries the verdict",
        lambda t: run(t, state="failed" if t >= 60 else "running", end=60 if t >= 60 else None, failure=OOM),
        {55: [], 60: [failed(error_type="oom", subsystem="cuda")], 200: [failed(error_type="oom", subsystem="cuda")]},
    ),
    Scenario("a failed run without a verdict", lambda t: run(t, state="failed", end=0), {60: [failed()]}),
    Scenario(
        "the verdict on another attempt is not used",
        lambda t: run(t, attempt=1, start=30, state="failed", end=40, failure=OOM),
        {60: [failed(attempt="1")]},
    ),
    Scenario(
        "a failed run is forgotten after six hours",
        lambda t: run(t, state="failed", end=-6 * HOUR + 60),
        {55: [failed()], 80: []},
    ),
    Scenario(
        "an old failed record is silent from the start",
        lambda t: run(t, state="failed", end=-7 * HOUR, metadata=-7 * HOUR, progress=-7 * HOUR),
        {0: [], 60: []},
    ),
    Scenario(
        "without an end the failure's own time counts",
        lambda t: run(t, state="failed", failed_at=-7 * HOUR, metadata=-8 * HOUR, progress=-8 * HOUR),
        {60: []},
    ),
    Scenario(
        "without either the last heartbeat counts",
        lambda t: run(t, state="failed", metadata=10, progress=10),
        {60: [failed()]},
    ),
    Scenario(
        "a new attempt ends it",
        lambda t: restarted(t, after=120, state="failed", end=60),
        {115: [failed()], 140: [], 200: []},
    ),
]

NEVER_STARTED = [
    Scenario(
        "a record without a first heartbeat",
        lambda t: run(t, state="pending", metadata=None, progress=None, step=None, phase_start=None),
        {60: [], 65: [never_started()]},
    ),
    Scenario(
        "a record that says running without a first heartbeat is not restarted",
        lambda t: run(t, metadata=None, progress=None, step=None, phase="idle"),
        {60: [], 65: [never_started()]},
    ),
    Scenario(
        "the first heartbeat ends it",
        lambda t: (
            run(t, phase="idle") if t >= 100 else run(t, state="pending", metadata=None, progress=None, step=None)
        ),
        {95: [never_started()], 120: []},
    ),
    Scenario(
        "a queued run that was heard of is none",
        lambda t: run(t, state="pending", metadata=0, progress=None, step=None),
        {200: []},
    ),
    Scenario(
        "a record of unknown age is not judged",
        lambda t: run(t, state="pending", start=None, metadata=None, progress=None, step=None),
        {200: []},
    ),
    Scenario(
        "a cancelled one is none",
        lambda t: run(t, state="cancelled", metadata=None, progress=None, step=None),
        {200: []},
    ),
]

DEGRADED = [
    Scenario(
        "the process' own heartbeat is silent while the loop goes on",
        lambda t: run(t, metadata=60),
        {120: [], 125: [degraded()]},
    ),
    Scenario(
        "the loop is silent within a budget that is longer",
        lambda t: run(t, progress=60, step=60, stall=PATIENT),
        {120: [], 125: [degraded()]},
    ),
    Scenario(
        "the loop may be silent outside the train phase",
        lambda t: run(t, progress=60, step=60, stall=PATIENT, phase="eval", phase_start=60),
        {200: []},
    ),
    Scenario(
        "the loop's silence in another phase does not count",
        lambda t: run(t, progress=60, step=60, stall=PATIENT, phase_start=0 if t < 200 else 200),
        {195: [degraded()], 220: [], 260: [], 265: [degraded()]},
    ),
    Scenario(
        "a rank is silent",
        lambda t: run(t, ranks={0: LIVE, 1: 60}),
        {120: [], 125: [degraded()]},
    ),
    Scenario(
        "several ranks are silent: still one alert",
        lambda t: run(t, ranks={0: LIVE, 1: 60, 2: 70, 3: 60}),
        {125: [degraded()], 200: [degraded()]},
    ),
    Scenario(
        "a rank that is back resolves it",
        lambda t: run(t, ranks={0: LIVE, 1: 60 if t < 150 else LIVE}),
        {145: [degraded()], 170: []},
    ),
    Scenario(
        "a rank on another node is judged by what that node's exporter read",
        lambda t: (
            run(t, ranks={0: LIVE})
            | {
                'training_rank_heartbeat_timestamp_seconds{run_id="r1",rank="1",instance="n2:9745"}': 60,
                observed("n2:9745"): min(t, 62),
            }
        ),
        {200: []},
    ),
    Scenario(
        "a rank of another node falls silent",
        lambda t: (
            run(t, ranks={0: LIVE})
            | {
                'training_rank_heartbeat_timestamp_seconds{run_id="r1",rank="1",instance="n2:9745"}': min(t, 60),
                observed("n2:9745"): t,
            }
        ),
        {120: [], 125: [degraded()]},
    ),
    Scenario(
        "a rank that is gone after a restart is not missed",
        lambda t: run(t, attempt=1, start=60, phase_start=60, ranks={0: LIVE, 1: 50}),
        {200: []},
    ),
    Scenario(
        "a rank that is no longer shown is unknown, not silent",
        lambda t: run(t, ranks={0: LIVE, 1: LIVE} if t < 60 else {0: LIVE}),
        {200: []},
    ),
    Scenario(
        "one rank alone keeps a run from having timed out",
        lambda t: run(t, phase="idle", metadata=60, progress=60, step=60, ranks={0: 60, 1: LIVE}),
        {125: [degraded()], 200: [degraded()]},
    ),
    Scenario(
        "a finished run misses no heartbeat",
        lambda t: run(t, state="succeeded", end=-2 * HOUR, metadata=60, ranks={1: 60}),
        {200: []},
    ),
]

SUCCEEDED = [
    Scenario(
        "a finished run",
        lambda t: run(
            t, state="succeeded" if t >= 60 else "running", end=60 if t >= 60 else None, metadata=60, step=60
        ),
        {55: [], 60: [succeeded()], 200: [succeeded()]},
    ),
    Scenario(
        "is forgotten after an hour",
        lambda t: run(t, state="succeeded", end=-HOUR + 60, metadata=0),
        {55: [succeeded()], 80: []},
    ),
    Scenario(
        "an old finished record is silent from the start",
        lambda t: run(t, state="succeeded", end=-2 * HOUR, metadata=-2 * HOUR, progress=-2 * HOUR),
        {0: [], 60: []},
    ),
]

ESCALATION = (
    'trainwarden_remediator_escalation_info{run_id="r1",job_id="41",attempt="2",failure_mode="stall",'
    'reason="3 of 3 restarts used",instance="remediator:9746",job="trainwarden-remediator"}'
)
EXHAUSTED: Alert = (
    "TrainRunRestartExhausted",
    {
        "run_id": "r1",
        "job_id": "41",
        "attempt": "2",
        "failure_mode": "stall",
        "severity": "critical",
        "remediate": "false",
    },
)
EXHAUSTION = [
    Scenario("the remediator gave up", lambda t: {ESCALATION: 1} if t >= 60 else {"up": 1}, {55: [], 60: [EXHAUSTED]}),
    Scenario(
        "a restart of the remediator is bridged",
        lambda t: {ESCALATION: 1} if t < 60 or t > 90 else {"up": 0},
        {
            75: [EXHAUSTED],
            90: [EXHAUSTED],
            120: [EXHAUSTED],
        },
    ),
    Scenario("it is over when the remediator says so", lambda t: {ESCALATION: 1} if t < 60 else {"up": 1}, {150: []}),
]

SCENARIOS = {
    "general": GENERAL,
    "TrainRunStalled": STALLED,
    "TrainRunTimedOut": TIMED_OUT,
    "TrainRunFailed": FAILED,
    "TrainRunNeverStarted": NEVER_STARTED,
    "TrainRunDegraded": DEGRADED,
    "TrainRunSucceeded": SUCCEEDED,
    "TrainRunRestartExhausted": EXHAUSTION,
}
