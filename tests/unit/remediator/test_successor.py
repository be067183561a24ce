"""A run whose work another job goes on with is not restarted beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_remediator.decide.verdict import Refuse, Wait
from trainwarden_remediator.drivers.driver import JobState, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import successor

ENDED = ScheduledJob("17", "run-1", 0, JobState.FAILED, "FAILED", user=1000)


def _other(state: JobState, run_id: str = "run-1", user: int = 1000, *, waits_for_jobs: bool = False) -> ScheduledJob:
    return ScheduledJob("18", run_id, 0, state, state.value, user=user, waits_for_jobs=waits_for_jobs)


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.OTHER, JobState.WAITING])
def test_another_job_of_the_run_that_runs_or_will_is_left_to_go_on(state: JobState) -> None:
    refusal = successor(ENDED, [ENDED, _other(state)])
    assert isinstance(refusal, Refuse)
    assert "job 18 is marked with the run too" in refusal.reason


def test_another_job_that_is_ending_is_waited_for() -> None:
    """A job whose processes take their time to end goes on with nothing, unless SLURM requeues it."""
    ending = _other(JobState.ENDING)
    verdict = successor(ENDED, [ending, ENDED])
    assert isinstance(verdict, Wait)
    assert "job 18 is marked with the run too and is ending" in verdict.reason
    running = replace(_other(JobState.RUNNING), job_id="19")
    assert isinstance(successor(ENDED, [ending, running]), Refuse)


@pytest.mark.parametrize(
    "other",
    [
        _other(JobState.WAITING, waits_for_jobs=True),
        _other(JobState.HELD),
        _other(JobState.FAILED),
        _other(JobState.CANCELLED),
        _other(JobState.RUNNING, run_id="run-2"),
        _other(JobState.RUNNING, user=1001),
    ],
)
def test_a_job_that_does_not_go_on_with_the_run_forbids_nothing(other: ScheduledJob) -> None:
    assert successor(ENDED, [other, ENDED]) is None


def test_where_the_list_of_jobs_may_lack_one_it_waits() -> None:
    assert isinstance(successor(ENDED, Unknown("no answer")), Wait)


def test_where_the_user_of_the_job_is_forgotten_a_job_of_anybody_goes_on_with_it() -> None:
    assert isinstance(successor(replace(ENDED, user=None), [_other(JobState.RUNNING)]), Refuse)
