"""Trainings over two nodes of a real SLURM cluster break, and come back: once, and only where that is wanted."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.training_job import EXAMPLE, TrainingJob
from tests.slurm.watched_cluster import CRASH_RESTARTS, WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.rank import read_rank
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(600)]

UNSHARE = ("unshare", "--uts") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--uts")
# Long enough never to end by itself within a test.
ENDLESS = ("--batch", "64", "--steps", "20000", "--step-seconds", "0.1", "--checkpoint-every", "20")
DYING = f"""\
#!/bin/bash
#SBATCH --requeue --open-mode=append
echo "start ${{SLURM_RESTART_COUNT:-0}}"
srun python3 {Path(__file__).with_name("dying_training.py")}
"""
# Each rank on a host of its own, as far as it can see; srun ends the others when one is lost.
SPREAD = f"""\
#!/bin/bash
#SBATCH --requeue --open-mode=append --nodes=2 --ntasks-per-node=1
echo "start ${{SLURM_RESTART_COUNT:-0}}"
srun --kill-on-bad-exit=1 {shlex.join(UNSHARE)} sh -c \
    'hostname "host$SLURM_PROCID"; exec python3 {Path(__file__).with_name("endless_training.py")}'
"""


@pytest.fixture(scope="module")
def watched(cluster: Cluster, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedCluster]:
    """The cluster with all of Trainwarden around it."""
    started = WatchedCluster(cluster, tools, tmp_path_factory.mktemp("watched"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module", autouse=True)
def dying(watched: WatchedCluster, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A training that always dies. It wants no attention, so it does that while the other tests run."""
    script = tmp_path_factory.mktemp("dying") / "dying.sbatch"
    script.write_text(DYING, encoding="utf-8")
    return watched.submit("dying", script)


@pytest.fixture(scope="module", autouse=True)
def finished(watched: WatchedCluster) -> TrainingJob:
    """A training that finishes, meanwhile likewise."""
    return watched.submit("finished", EXAMPLE, "--steps", "30", "--step-seconds", "0.05", "--checkpoint-every", "10")


def _came_back(watched: WatchedCluster, job: TrainingJob, failure_mode: str, step_before: int) -> None:
    """The run was restarted exactly once, from a checkpoint, and is past the step where it broke."""
    incident = watched.wait_for_incident(job.run_id, failure_mode=failure_mode, state="DONE")
    assert incident["action"] == "restart"
    assert incident["attempt_key"] == f"slurm:{job.job_id}:0"
    assert job.has_passed(step_before) > step_before
    assert [attempt.key for attempt in job.attempts] == [f"slurm:{job.job_id}:{count}" for count in (0, 1)]
    resumed_at = job.attempts[1].resume_step
    assert resumed_at is not None
    assert 20 <= resumed_at <= step_before + 1
    assert job.starts == 2
    in_slurm = watched.cluster.job(job.job_id)
    assert in_slurm is not None
    assert (in_slurm.state, in_slurm.restarts) == ("RUNNING", 1)
    assert watched.calls(job)[0] == "requeuehold"
    assert watched.calls(job)[-1] == "release"


def _stayed_down(watched: WatchedCluster, job: TrainingJob, state: str) -> None:
    """The job was started once, ended in this state, and was never touched by the remediator."""
    assert job.state() == state
    assert job.starts == 1
    assert watched.calls(job) == []


def test_a_hung_rank_leads_to_a_restart_from_the_checkpoint(watched: WatchedCluster) -> None:
    job = watched.submit("hung", EXAMPLE, *ENDLESS)
    job.has_passed(30)
    job.signal_rank(1, signal.SIGSTOP)
    watched.wait_for_alert("TrainRunStalled", "hung")
    step_before = job.step
    _came_back(watched, job, "stall", step_before)
    watched.cluster.run("scancel", str(job.job_id))


@pytest.mark.nightly
def test_a_remediator_that_is_killed_while_it_ends_an_attempt_gives_one_start_when_it_is_back(
    watched: WatchedCluster,
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
    _came_back(watched, job, "stall", step_before)
    assert job.starts == 2
    watched.cluster.run("scancel", str(job.job_id))


@pytest.mark.parametrize("how", ["uhold", pytest.param("hold", marks=pytest.mark.nightly)])
def test_a_hold_that_a_person_lays_upon_the_released_job_is_left(watched: WatchedCluster, how: str) -> None:
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


def test_a_killed_rank_leads_to_a_restart_from_the_checkpoint(watched: WatchedCluster) -> None:
    job = watched.submit("killed", EXAMPLE, *ENDLESS)
    job.has_passed(30)
    job.signal_rank(1, signal.SIGKILL)
    watched.wait_for_alert("TrainRunFailed", "killed")
    step_before = job.step
    _came_back(watched, job, "crash", step_before)
    watched.cluster.run("scancel", str(job.job_id))


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """The batch script of a training on two hosts."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("host names of their own are not allowed here")
    script = tmp_path / "spread.sbatch"
    script.write_text(SPREAD, encoding="utf-8")
    return script


def test_a_rank_that_is_killed_on_another_host_leads_to_a_restart(watched: WatchedCluster, spread: Path) -> None:
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


def test_ranks_on_two_hosts_that_their_user_cancels_stay_cancelled(watched: WatchedCluster, spread: Path) -> None:
    job = watched.submit("two-hosts", spread)
    job.has_passed(5)
    wait_until(lambda: read_rank(job.folder, 1) is not None, "rank 1 trains")
    watched.cluster.run("scancel", str(job.job_id))
    job.wait_for_state("CANCELLED")
    # This exporter does not read SLURM, and shows what the ranks could tell.
    incident = watched.wait_for_incident("two-hosts", alert="TrainRunFailed", state="SUPPRESSED", action="none")
    assert "CANCELLED" in incident["reason"]
    _stayed_down(watched, job, "CANCELLED")


def test_a_stalled_job_that_its_user_cancels_stays_cancelled(watched: WatchedCluster) -> None:
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
    _stayed_down(watched, job, "CANCELLED")


def test_a_completed_run_is_not_restarted_whatever_alerts_and_record_claim(
    watched: WatchedCluster, finished: TrainingJob
) -> None:
    finished.wait_for_state("COMPLETED")
    watched.wait_for_alert("TrainRunSucceeded", "finished")
    now = datetime.now(timezone.utc).isoformat()
    labels = {
        "severity": "critical",
        "remediate": "true",
        "run_id": "finished",
        "attempt": "0",
        "scheduler": "slurm",
        "job_id": str(finished.job_id),
    }
    watched.post_to_webhook({**labels, "alertname": "TrainRunTimedOut", "failure_mode": "timeout"}, now)
    watched.post_to_alertmanager({**labels, "alertname": "TrainRunStalled", "failure_mode": "stall"}, now)
    forged = watched.wait_for_incident("finished", alert="TrainRunTimedOut", state="SUPPRESSED")
    stale = watched.wait_for_incident("finished", alert="TrainRunStalled", state="SUPPRESSED")

    (finished.folder / "_complete").unlink()
    finished.change_record(status="failed")
    lied = watched.wait_for_incident("finished", alert="TrainRunFailed", state="SUPPRESSED")

    assert [incident["action"] for incident in (forged, stale, lied)] == ["none"] * 3
    assert "COMPLETED" in lied["reason"]
    _stayed_down(watched, finished, "COMPLETED")


def test_a_training_that_always_dies_is_restarted_as_often_as_allowed_and_then_a_person_is_paged(
    watched: WatchedCluster, dying: TrainingJob
) -> None:
    watched.wait_for_alert("TrainRunRestartExhausted", "dying", seconds=240)
    wait_until(
        lambda: any("TrainRunRestartExhausted" in str(m.payload) for m in watched.sink.messages), "a message about it"
    )
    last = watched.wait_for_incident("dying", state="ESCALATED")
    assert last["budget"] == {"used": CRASH_RESTARTS, "limit": CRASH_RESTARTS, "left": 0}
    assert dying.starts == 1 + CRASH_RESTARTS
    job = watched.cluster.job(dying.job_id)
    assert job is not None
    assert (job.state, job.restarts) == ("FAILED", CRASH_RESTARTS)
    assert len(dying.attempts) == 1 + CRASH_RESTARTS


def test_slurmctld_standing_still_during_both_restart_commands_leads_to_one_start_and_no_more(
    watched: WatchedCluster,
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
    _came_back(watched, job, "stall", step_before)
    watched.cluster.run("scancel", str(job.job_id))


def _said(watched: WatchedCluster, run_id: str, *words: str) -> bool:
    """Whether the remediator's log of a run has a line with all these words."""
    lines = [str(event["detail"]) for incident in watched.incidents(run_id) for event in incident["events"]]
    return any(all(word in line for word in words) for line in lines)
