"""Restarts over two nodes of a real SLURM cluster while its services, or its users, do something else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.programs import Programs
from tests.slurm.training_job import ENDLESS, EXAMPLE
from tests.slurm.watched_cluster import OwnWatchedCluster, WatchedCluster, running_watched_cluster
from tests.waiting import wait_until
from trainwarden.record.rank import read_rank
from trainwarden.stack.binaries import Tools

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600),
]  # fmt: skip


@pytest.fixture(scope="module")
def watched(
    slurm_programs: Programs, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnWatchedCluster]:
    """A cluster with all of Trainwarden around it, whose controller and whose remediator stand still or die."""
    with running_watched_cluster(slurm_programs, tools, tmp_path_factory.mktemp("watched")) as started:
        yield started


def test_a_remediator_that_is_killed_while_it_ends_an_attempt_gives_one_start_when_it_is_back(
    watched: OwnWatchedCluster,
) -> None:
    job = watched.submit("remediator-killed", EXAMPLE, *ENDLESS)
    job.has_passed(30)
    job.signal_rank(1, signal.SIGSTOP)
    wait_until(lambda: "requeuehold" in watched.calls(job), "the end of the attempt", timeout=150)
    watched.kill_remediator()
    step_before = job.step
    wait_until(lambda: (found := watched.cluster.job(job.job_id)) and found.restarts == 1, "the requeue", timeout=60)
    assert watched.calls(job) == ["requeuehold"]
    watched.revive_remediator()
    watched.came_back(job, "stall", step_before)
    assert job.starts == 2
    watched.cluster.run("scancel", str(job.job_id))


@pytest.mark.parametrize("how", ["uhold", "hold"])
def test_a_hold_that_a_person_lays_upon_the_released_job_is_left(watched: OwnWatchedCluster, how: str) -> None:
    """The job waits for its old credential to expire: SLURM describes such a hold otherwise than a requeue.

    `hold` by root is that of an administrator.
    """
    run_id = f"held-by-{how}"
    job = watched.submit(run_id, EXAMPLE, *ENDLESS)
    job.has_passed(5)
    job.signal_rank(1, signal.SIGSTOP)
    wait_until(lambda: "release" in watched.calls(job), "the release", timeout=150)
    watched.wait_for_incident(run_id, state="VERIFYING")
    watched.cluster.run("scontrol", how, str(job.job_id))
    incident = watched.wait_for_incident(run_id, state="ESCALATED")
    assert "held, and not by us" in incident["reason"]
    assert watched.calls(job).count("release") == 1
    assert job.starts == 1
    watched.cluster.run("scancel", str(job.job_id))


def test_a_rank_that_is_killed_on_another_host_leads_to_a_restart(watched: OwnWatchedCluster, spread: Path) -> None:
    job = watched.submit("elsewhere", spread)
    job.has_passed(5)
    wait_until(lambda: read_rank(job.folder, 1) is not None, "rank 1 trains")
    job.signal_rank(1, signal.SIGKILL)
    watched.wait_for_alert("TrainRunFailed", "elsewhere")
    incident = watched.wait_for_incident("elsewhere", failure_mode="crash", action="restart", state="VERIFYING")
    assert (incident["attempt_key"], incident["error_type"]) == (f"slurm:{job.job_id}:0", "unknown")
    wait_until(lambda: len(job.attempts) == 2, "the second attempt")
    assert [attempt.key for attempt in job.attempts] == [f"slurm:{job.job_id}:{count}" for count in (0, 1)]
    watched.cluster.run("scancel", str(job.job_id))


def test_a_stalled_job_that_its_user_cancels_stays_cancelled(watched: OwnWatchedCluster) -> None:
    job = watched.submit("cancelled", EXAMPLE, *ENDLESS)
    job.has_passed(5)
    with watched.paused_remediator():  # so that the user is the faster one
        job.signal_rank(1, signal.SIGSTOP)
        watched.wait_for_alert("TrainRunStalled", "cancelled")
        watched.cluster.run("scancel", str(job.job_id))
        job.wait_for_state("CANCELLED")
        stalled = watched.active("TrainRunStalled", "cancelled")
        assert stalled, "the alert is active still"
    # As Alertmanager, which tries again what a remediator that stood still did not take, before the alert resolves.
    watched.post_to_webhook(dict(stalled[0].labels), stalled[0].starts_at)
    watched.wait_for_incident("cancelled", alert="TrainRunStalled", state="SUPPRESSED", action="none")

    # As if no rank had been able to record its end: now SLURM alone knows. A rank whose neighbour was killed first has.
    (job.folder / "_error").unlink(missing_ok=True)
    job.change_record(status="running")
    silent = watched.wait_for_incident("cancelled", alert="TrainRunTimedOut", state="SUPPRESSED", action="none")
    assert "CANCELLED" in silent["reason"]
    watched.stayed_down(job, "CANCELLED")


def test_slurmctld_standing_still_during_both_restart_commands_leads_to_one_start_and_no_more(
    watched: OwnWatchedCluster,
) -> None:
    job = watched.submit("in-doubt", EXAMPLE, *ENDLESS)
    job.has_passed(30)
    watched.stop_slurmctld_before("requeuehold", job)
    watched.stop_slurmctld_before("release", job)
    job.signal_rank(1, signal.SIGSTOP)
    try:
        watched.wait_for_incident("in-doubt", state="IN_DOUBT")
        step_before, readings = job.step, watched.readings()
        wait_until(lambda: watched.readings() > readings, "squeue fails as well")
        watched.resume_slurmctld()
        wait_until(lambda: "release" in watched.calls(job), "the release is called", timeout=60)
        wait_until(lambda: _said(watched, "in-doubt", "release", "status 1"), "its answer is unclear", timeout=60)
    finally:
        watched.resume_slurmctld()
    watched.came_back(job, "stall", step_before)
    watched.cluster.run("scancel", str(job.job_id))


def _said(watched: WatchedCluster, run_id: str, *words: str) -> bool:
    """Whether the remediator's log of a run has a line with all these words."""
    lines = [str(event["detail"]) for incident in watched.incidents(run_id) for event in incident["events"]]
    return any(all(word in line for word in words) for line in lines)
