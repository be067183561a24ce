"""What must raise the alerts that no machine acts on, and what must not."""

from __future__ import annotations

from tests.rules.expected import degraded, failed, never_started, rank_silent, succeeded
from tests.rules.promtool import LIVE, Alert, Scenario, observed, present, ranks_of, run
from trainwarden.taxonomy import ERROR_TYPES, FAILURES, Failure

HOUR = 3600
# A loop that may be silent for longer than a heartbeat.
PATIENT = {"train": 600.0, "eval": 600.0}

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
        "an expected run without a record",
        lambda t: (
            run(t, state="pending", metadata=None, progress=None, step=None, phase_start=None)
            | {'training_run_expected{run_id="r1",source="slurm",instance="n1:9745",job="trainwarden-exporter"}': 1}
        ),
        {60: [], 65: [never_started()]},
    ),
    Scenario(
        "the first heartbeat ends it",
        lambda t: (
            run(t, phase="idle") if t >= 100 else run(t, state="pending", metadata=None, progress=None, step=None)
        ),
        {95: [never_started()], 165: []},
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
        {195: [degraded()], 235: [degraded()], 262: [], 265: [degraded()]},
    ),
    Scenario(
        "a rank is silent",
        lambda t: run(t, ranks={0: LIVE, 1: 60}),
        {120: [], 145: [rank_silent()]},
    ),
    Scenario(
        "several ranks are silent: still one alert",
        lambda t: run(t, ranks={0: LIVE, 1: 60, 2: 70, 3: 60}),
        {145: [rank_silent()], 200: [rank_silent()]},
    ),
    Scenario(
        "a rank that is back resolves it",
        lambda t: run(t, ranks={0: LIVE, 1: 60 if t < 150 else LIVE}),
        {145: [rank_silent()], 215: []},
    ),
    Scenario(
        "a rank on another node is judged by what that node's exporter read",
        lambda t: (
            run(t, ranks={0: LIVE})
            | present(ranks_of(min(t, 62), "r1", "n2:9745", "n2", {1: 60}))
            | {observed("n2:9745"): min(t, 62)}
        ),
        {200: []},
    ),
    Scenario(
        "a rank of another node falls silent",
        lambda t: (
            run(t, ranks={0: LIVE}) | present(ranks_of(t, "r1", "n2:9745", "n2", {1: 60})) | {observed("n2:9745"): t}
        ),
        {120: [], 145: [rank_silent(node="n2")]},
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
        {145: [degraded(), rank_silent()], 200: [degraded(), rank_silent()]},
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


def _fails(failure: Failure) -> Scenario:
    """A run that fails so: its alert carries the type and the subsystem of its verdict."""
    verdict = {"error_type": failure.error_type, "subsystem": failure.subsystem}
    shown = {"attempt": "0", "failure": failure.slug, "severity": failure.severity, **verdict}
    return Scenario(
        failure.error_type,
        lambda t: run(t, state="failed", end=20, failure=shown) if t >= 20 else run(t),
        {15: [], 25: [failed(**verdict)]},
    )


# One failure of each type.
ERROR_TYPE = [
    _fails(next(each for _, each in sorted(FAILURES.items()) if each.error_type == error_type))
    for error_type in sorted(ERROR_TYPES)
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
        "reason": "3 of 3 restarts used",
        "severity": "critical",
        "subsystem": "remediator",
        "remediate": "false",
    },
)
EXHAUSTION = [
    Scenario(
        "the remediator gave up, and nobody knows the run",
        lambda t: {ESCALATION: 1} if t >= 60 else {"up": 1},
        # Where somebody does, what is known of it may be recorded a moment later.
        {70: [], 75: [EXHAUSTED]},
    ),
    Scenario(
        "a restart of the remediator is bridged",
        lambda t: {ESCALATION: 1} if t < 60 or t > 90 else {"up": 0},
        {
            75: [EXHAUSTED],
            90: [EXHAUSTED],
            120: [EXHAUSTED],
        },
    ),
    Scenario(
        "it is over when the remediator says so",
        lambda t: {ESCALATION: 1} if t < 60 else {"up": 1},
        {55: [EXHAUSTED], 150: []},
    ),
]
