"""What must raise TrainRunStalled, TrainRunTimedOut and TrainRunFailed, and what must not."""

from __future__ import annotations

from tests.rules.expected import degraded, failed, rank_silent, stalled, timed_out
from tests.rules.promtool import LIVE, Page, Scenario, run

HOUR = 3600
LAST = -24 * HOUR + 200
OOM = {"attempt": "0", "error_type": "oom", "failure": "cuda_oom", "subsystem": "cuda", "severity": "critical"}


def restarted(t: int, *, after: int = 60, **before: object) -> Page:
    """A run whose attempt 1 starts at second `after`, on the same host."""
    if t < after:
        return run(t, **before)  # type: ignore[arg-type]  # the keywords of run()
    return run(t, attempt=1, job_id="42", start=after, phase_start=after)


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
        {200: []},
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
        "steps that were read from what a command prints call a person, not the machine, and are no heartbeat",
        lambda t: run(t, inferred=True, step=60, progress=60),
        {90: [], 95: [stalled(remediate="false")], 150: [stalled(remediate="false")]},
    ),
    Scenario(
        "a command that hangs before its first printed step calls a person, not the machine",
        lambda t: run(t, inferred=True, phase="init", step=None, progress=None),
        {90: [], 95: [stalled(remediate="false")]},
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
        "a loop that moves without a new step, set back or counting anew in each epoch, is never restarted",
        lambda t: run(t, step=60, moved=LIVE),
        {95: [], 150: [], 155: [degraded()], 300: [degraded()]},
    ),
    Scenario(
        "and is a stall once it stands still",
        lambda t: run(t, step=60, moved=200),
        {195: [degraded()], 230: [degraded()], 235: [degraded(), stalled()], 295: [stalled()]},
    ),
    Scenario(
        "an exporter that does not show changes of the step is believed in its advances",
        lambda t: {series: value for series, value in run(t, step=60).items() if "step_change" not in series},
        {90: [], 95: [stalled()]},
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
        {95: [stalled()], 120: [stalled()], 145: [rank_silent(), timed_out()]},
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
        "it stays a person's business until a day after its last sign of life",
        lambda t: (
            {"up": 0} if t > 60 else run(t, start=-25 * HOUR, phase="idle", metadata=LAST, progress=LAST, step=LAST)
        ),
        {
            30: [],
            155: [timed_out(remediate="false")],
            195: [timed_out(remediate="false")],
            235: [],
        },
    ),
    Scenario(
        "a run that may be silent for longer than an hour is missed as well",
        lambda t: run(t, stale=2 * HOUR, phase="idle") if t <= 60 else {"up": 0},
        {2 * HOUR + 60: [], 2 * HOUR + 105: [timed_out(remediate="false")]},
    ),
    Scenario(
        "a run of two attempts that vanished is called by the newer one",
        lambda t: restarted(t) if t <= 120 else {"up": 0},
        {HOUR + 600: [timed_out(attempt="1", job_id="42", remediate="false")]},
    ),
    Scenario(
        "a run that had ended before its exporter went is not remembered as running",
        lambda t: {"up": 0} if t > 90 else run(t, state="running" if t < 30 else "cancelled", end=30),
        {300: [], HOUR + 600: []},
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
        lambda t: run(t, start=-7 * HOUR, phase_start=-7 * HOUR, state="failed", end=-6 * HOUR + 60),
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
