"""All scenarios, and those that belong to no single alert.

usage: python -m tests.rules.scenarios rules/tests
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.rules.expected import failed, rank_silent, stalled, timed_out
from tests.rules.promtool import LIVE, Page, Scenario, document, in_cluster, run
from tests.rules.scenarios_contradicted import CONTRADICTED
from tests.rules.scenarios_critical import FAILED, OOM, STALLED, TIMED_OUT
from tests.rules.scenarios_doubt import DOUBT
from tests.rules.scenarios_other import DEGRADED, ERROR_TYPE, EXHAUSTION, NEVER_STARTED, SUCCEEDED
from tests.rules.scenarios_s3 import S3


def ahead(page: Page, seconds: int) -> Page:
    """The same from a training whose clock is ahead of everybody else's."""
    beats = ("training_heartbeat", "training_rank_heartbeat", "training_step_timestamp", "training_phase_start")
    return {series: value + seconds if series.startswith(beats) else value for series, value in page.items()}


# Without a cluster, as most runs have none.
WITHOUT_CLUSTER = [
    Scenario("a healthy run raises nothing", lambda t: run(t, ranks={0: LIVE, 1: LIVE}), {0: [], 60: [], 200: []}),
    Scenario("no data raises nothing", lambda _: {"up": 1}, {200: []}),
    Scenario(
        "one lost scrape does not resolve an alert",
        lambda t: {} if t == 110 else run(t, step=60),
        {105: [stalled()], 110: [stalled()], 115: [stalled()]},
    ),
]

GENERAL = [
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
        "the same run id in two clusters is two runs, each called by its own labels",
        lambda t: (
            in_cluster("a", run(t, step=60, job_id="42", attempt=1, start=5))
            | in_cluster("b", run(t, host="n2", state="failed", end=20, failure=OOM))
        ),
        {
            95: [
                stalled(cluster="a", job_id="42", attempt="1"),
                failed(cluster="b", node="n2", error_type="oom", subsystem="cuda"),
            ]
        },
    ),
    Scenario(
        "a run is not alive because another cluster has one of its name",
        lambda t: (
            in_cluster("a", run(t, phase="idle", metadata=60, progress=60, step=60))
            | in_cluster("b", run(t, ranks={0: LIVE, 1: 60}))
        ),
        {145: [timed_out(cluster="a"), rank_silent(cluster="b")]},
    ),
    Scenario(
        "a run that vanished is missed although another cluster shows one of its name",
        lambda t: (in_cluster("a", run(t)) if t <= 60 else {}) | in_cluster("b", run(t, host="n2")),
        {155: [timed_out(cluster="a", remediate="false")]},
    ),
]

# Played side by side, each in a cluster of its own.
SCENARIOS = {
    "general": GENERAL,
    "TrainRunStalled": STALLED,
    "TrainRunTimedOut": TIMED_OUT,
    "TrainRunFailed": FAILED,
    "error type": ERROR_TYPE,
    "TrainRunNeverStarted": NEVER_STARTED,
    "TrainRunDegraded": DEGRADED,
    "TrainRunSucceeded": SUCCEEDED,
    "TrainRunRestartExhausted": EXHAUSTION,
    "S3": S3,
    "doubt": DOUBT,
    "contradicted": CONTRADICTED,
}

# The longest that scenarios of one test take: each is played beside those that take about as long.
BOUNDS = (150, 300, 3600)
# What takes longer is in a file that is evaluated more rarely.
LASTING_INTERVAL = 15
# What the alerts of these scenarios stand on.
LASTING_RULES = [
    *(f"alerts/{name}.yml" for name in ("hangs", "pace", "remediator", "run_parts", "runs")),
    *(f"recording/{name}.yml" for name in ("fabric", "goodput", "identity", "nodes", "pace", "runs")),
]
RULES = [*LASTING_RULES, "alerts/goodput.yml", "alerts/schedulers.yml"]


def files() -> dict[str, str]:
    """Return the files for promtool, each with its text."""
    lasting = [
        (f"{subject} after hours", some)
        for subject, scenarios in SCENARIOS.items()
        if (some := [each for each in scenarios if each.seconds > BOUNDS[-1]])
    ]
    return {
        "runs.yml": document(list(_tests()), RULES),
        "runs_lasting.yml": document(lasting, LASTING_RULES, LASTING_INTERVAL),
    }


def _tests() -> Iterator[tuple[str, list[Scenario]]]:
    """Yield each test of up to an hour."""
    yield from ((each.name, [each]) for each in WITHOUT_CLUSTER)
    for subject, scenarios in SCENARIOS.items():
        for above, bound in pairwise((-1, *BOUNDS)):
            if some := [each for each in scenarios if above < each.seconds <= bound]:
                yield f"{subject} within {bound} s", some


if __name__ == "__main__":
    for name, text in files().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
