"""What must not be ended: a run of which one thing says silent or still, and another that it works."""

from __future__ import annotations

from tests.rules.expected import failed, node_failed, stalled, timed_out
from tests.rules.promtool import LIVE, Page, Scenario, in_cluster, run
from tests.rules.scenarios_doubt import BEHIND, behind, counting, job, logs, silent_since

AWAY, BACK = 120, 500
UNPROVEN = timed_out(remediate="false", subsystem="distributed")
STEPS_ON = failed(remediate="false")


def failing(t: int, **more: object) -> Page:
    """A run that records an error at second 60; its steps go on unless others end."""
    error: dict[str, object] = {"state": "failed", "end": 60, "steps_on": True} if t >= 60 else {}
    return run(t, **{**error, **more})  # type: ignore[arg-type]  # keywords of run()


def scraped(t: int, page: Page, since: int = BACK) -> Page:
    """The page, but for the time in which Prometheus is away, which is longer than it remembers a sample."""
    return page if t < AWAY or t >= since else {}


def counting_highest(until: float) -> Page:
    """A rank of a node that is gone, which had counted higher than those that go on."""
    return {'training_host_rank_steps{run_id="r1",host="n2",instance="n2:9745",job="trainwarden-exporter"}': until}


def counting_slowly(t: int) -> Page:
    """A rank that needs a minute for a step."""
    return counting(t - t % 60)


def hung(t: int, hangs: str, reads: str) -> Page:
    """Two exporters show the same record: one reads nothing from 60 on, and the run dies at 120."""
    return silent_since(60, t, instance=hangs, read=60) | silent_since(120, t, instance=reads)


def replaced(t: int) -> Page:
    """n1 is gone and left a folder that says running; the run goes on on n2, whose clock is hours behind."""
    old = silent_since(10, t, phase="idle")
    return old if t < 60 else old | behind(run(t, instance="n2:9745", host="n2", attempt=1, start=60, phase_start=60))


def set_back(t: int) -> Page:
    """The clock of the host that writes the record is set back at second 200; that of its exporter is right."""
    page = run(t, phase="idle")
    beats = ("training_life", "training_heartbeat")
    return {name: value - BEHIND if t >= 200 and name.startswith(beats) else value for name, value in page.items()}


CONTRADICTED = [
    Scenario(
        "no heartbeat in an evaluation, and its log grows",
        lambda t: silent_since(60, t, phase="eval") | logs(t, LIVE),
        {125: [UNPROVEN], 400: [UNPROVEN]},
    ),
    Scenario(
        "no heartbeat, and a log that grows once in two minutes",
        lambda t: silent_since(60, t, stale=300, phase="idle") | logs(t, t - t % 120),
        {365: [UNPROVEN], 475: [UNPROVEN], 595: [UNPROVEN]},
    ),
    Scenario(
        "no heartbeat, and the log ended as long ago as the run may be silent",
        lambda t: silent_since(60, t, phase="idle") | logs(t, 90),
        {125: [UNPROVEN], 160: [timed_out()]},
    ),
    Scenario(
        "a long evaluation whose log grows",
        lambda t: run(t, phase="eval", phase_start=20, step=20) | logs(t, LIVE),
        {145: [stalled(remediate="false")], 400: [stalled(remediate="false")]},
    ),
    Scenario(
        "a long compilation whose log grows once in a minute",
        lambda t: run(t, phase="init", phase_start=2, step=None, progress=None) | logs(t, t - t % 60),
        {95: [stalled(remediate="false")], 115: [stalled(remediate="false")], 130: [stalled(remediate="false")]},
    ),
    Scenario(
        "another rank needs a minute for a step",
        lambda t: run(t, step=60, stall={"train": 100}) | counting_slowly(t),
        {205: [stalled(remediate="false")], 235: [stalled(remediate="false")], 295: [stalled(remediate="false")]},
    ),
    Scenario(
        "no heartbeat, and a rank counts below one that is gone",
        lambda t: silent_since(60, t, phase="idle") | counting(t) | counting_highest(5000),
        {125: [UNPROVEN], 300: [UNPROVEN]},
    ),
    Scenario(
        "the heartbeats of a run that starts come from a clock that is hours behind that of its exporter",
        lambda t: {
            name: value - BEHIND if "timestamp" in name and "last_success" not in name else value
            for name, value in run(t, phase="idle").items()
        },
        {5: [], 60: [], 75: [UNPROVEN], 300: [UNPROVEN]},
    ),
    Scenario(
        "the clock of a host is set back under a run",
        set_back,
        {
            195: [],
            205: [],
            215: [],
            265: [UNPROVEN],
            400: [UNPROVEN],
        },
    ),
    Scenario(
        "Prometheus was away, and the log of a run without heartbeats grows",
        lambda t: scraped(t, silent_since(60, t, phase="idle") | logs(t, LIVE)),
        {505: [UNPROVEN], 600: [UNPROVEN]},
    ),
    Scenario(
        "Prometheus was away, and a rank of a run without heartbeats counts",
        lambda t: scraped(t, silent_since(60, t, phase="idle") | counting(t)),
        {500: [], 530: [UNPROVEN], 600: [UNPROVEN]},
    ),
    Scenario(
        "Prometheus was away while a run died",
        lambda t: scraped(t, silent_since(200, t, phase="idle")),
        {520: [], 560: [], 600: [timed_out()]},
    ),
    Scenario(
        "the exporter of a silent run restarts",
        lambda t: silent_since(60, t, phase="idle") if t < 200 or t >= 230 else {"up": 0},
        {195: [timed_out()], 215: [timed_out()], 230: [timed_out()], 240: [timed_out()], 300: [timed_out()]},
    ),
    Scenario(
        "a record that lives on another node, with a clock hours behind",
        replaced,
        {75: [UNPROVEN], 300: [UNPROVEN]},
    ),
    Scenario(
        "one of two exporters of a shared folder hangs, and the run dies",
        lambda t: hung(t, "a:9745", "b:9745"),
        {150: [], 155: [stalled()], 190: [timed_out()], 320: [timed_out()]},
    ),
    Scenario(
        "the other one hangs",
        lambda t: hung(t, "b:9745", "a:9745"),
        {150: [], 155: [stalled()], 190: [timed_out()], 320: [timed_out()]},
    ),
    Scenario(
        "an error is recorded, and the steps go on",
        failing,
        {55: [], 60: [failed()], 80: [failed()], 85: [STEPS_ON], 400: [STEPS_ON]},
    ),
    Scenario(
        "an error is recorded, and the steps go on for a while",
        lambda t: failing(t, step=200),
        {260: [STEPS_ON], 265: [failed()]},
    ),
    Scenario(
        "an error is recorded, and the steps of a slow run go on for a while",
        lambda t: failing(t, step=200, stall={"train": 100}),
        {300: [STEPS_ON], 305: [failed()]},
    ),
    Scenario(
        "an error is recorded, and the steps go on in a phase without a budget",
        lambda t: failing(t, phase="idle", step=200),
        {260: [STEPS_ON], 265: [failed()]},
    ),
    Scenario(
        "the step during which a rank failed ends a moment later",
        lambda t: failing(t, step=75),
        {75: [failed()], 100: [failed()], 120: [failed()]},
    ),
    Scenario(
        "the next step ends later",
        lambda t: failing(t, step=80),
        {75: [failed()], 90: [STEPS_ON], 140: [STEPS_ON], 145: [failed()]},
    ),
    Scenario(
        "an error is recorded, and another rank counts steps",
        lambda t: failing(t, step=60) | counting(t, until=300),
        {75: [failed()], 125: [STEPS_ON], 330: [STEPS_ON], 400: [failed()]},
    ),
    Scenario(
        "an error is recorded, and the other rank ends with it",
        lambda t: failing(t, step=60) | counting(t, until=60),
        {75: [failed()], 100: [failed()], 125: [failed()]},
    ),
    Scenario(
        "an error is recorded, the steps go on, and the scheduler ends the job",
        lambda t: failing(t, step=200) | job("running" if t < 205 else "node_fail"),
        {205: [STEPS_ON], 210: [failed()], 300: [failed(), node_failed()]},
    ),
    Scenario(
        "an error is recorded, and the end of an earlier start of the job is still shown",
        lambda t: failing(t) | job("node_fail") | job("running"),
        {100: [STEPS_ON, node_failed()]},
    ),
    Scenario(
        "an error is recorded, and another job of the run has ended",
        lambda t: failing(t) | job("node_fail", job_id="40"),
        {100: [STEPS_ON, node_failed(job_id="40")]},
    ),
    Scenario(
        "an error is recorded, and in another cluster neither steps nor the job go on",
        lambda t: in_cluster("a", failing(t)) | in_cluster("b", failing(t, step=60) | job("node_fail")),
        {100: [failed(cluster="a", remediate="false"), failed(cluster="b"), node_failed(cluster="b")]},
    ),
    Scenario(
        "an error is recorded, and another run has failed",
        lambda t: failing(t) | failing(t, run_id="r2", step=60, job_id="42"),
        {100: [STEPS_ON, failed(run_id="r2", job_id="42")]},
    ),
]
