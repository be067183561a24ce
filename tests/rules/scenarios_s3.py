"""What must be raised of records that are in S3 alone: S3 that does not answer accuses no run."""

from __future__ import annotations

from tests.rules.expected import lacking, never_started, timed_out, unobserved
from tests.rules.promtool import LIVE, Page, Scenario, run


def in_s3(page: Page, confirmed: float, run_id: str = "r1") -> Page:
    """The page of a run that is in S3 alone, which S3 confirmed last at second `confirmed`."""
    labels = f'run_id="{run_id}",instance="n1:9745",job="trainwarden-exporter"'
    return {**page, f"training_run_observed_timestamp_seconds{{{labels}}}": confirmed}


def until(t: int, last: float) -> float:
    return min(float(t), last)


S3 = [
    Scenario(
        "a run whose record S3 goes on confirming is silent",
        lambda t: in_s3(run(t, metadata=60, progress=60, step=60, phase="idle"), until(t, LIVE)),
        {120: [], 125: [timed_out()]},
    ),
    Scenario(
        "S3 does not answer: neither silent nor standing still",
        lambda t: in_s3(run(t, metadata=60, progress=60, step=60), until(t, 60)),
        {125: [], 300: [], 400: [unobserved()]},
    ),
    Scenario(
        "of two that it confirmed last one after the other, the first is never called the only one",
        lambda t: {
            **in_s3(run(t, metadata=60, progress=60, step=60), until(t, 60)),
            **in_s3(run(t, run_id="r2", metadata=60, progress=60, step=60), until(t, 80), "r2"),
        },
        {380: [], 390: [], 425: [lacking(unobserved(), "run_id", "node")]},
    ),
    Scenario(
        "S3 answers again and the run has been silent",
        lambda t: in_s3(run(t, metadata=60, progress=60, step=60, phase="idle"), 60.0 if 60 < t < 300 else float(t)),
        {295: [], 300: [], 355: [], 380: [timed_out()]},
    ),
    Scenario(
        "S3 does not answer before a run has started",
        lambda t: in_s3(
            run(t, state="pending", metadata=None, progress=None, step=None, phase_start=None), until(t, 30)
        ),
        {65: [], 300: []},
    ),
    Scenario(
        "S3 answers, and a run never started",
        lambda t: in_s3(
            run(t, state="pending", metadata=None, progress=None, step=None, phase_start=None), until(t, LIVE)
        ),
        {60: [], 65: [never_started()]},
    ),
]
