"""Trainings over two nodes of a real SLURM cluster break, and come back: once, and only where that is wanted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.slurm.training_job import ENDLESS, EXAMPLE, TrainingJob
from tests.slurm.watched_cluster import CRASH_RESTARTS, WatchedCluster
from tests.waiting import wait_until
from trainwarden.record.rank import read_rank

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(600)]

DYING = f"""\
#!/bin/bash
#SBATCH --requeue --open-mode=append
echo "start ${{SLURM_RESTART_COUNT:-0}}"
srun python3 {Path(__file__).with_name("dying_training.py")}
"""


@pytest.fixture(scope="module", autouse=True)
def jobs(
    watched: WatchedCluster, spread: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TrainingJob]]:
    """All trainings, by run, submitted at once: each waits for the alerts about it while the others do."""
    dying = tmp_path_factory.mktemp("dying") / "dying.sbatch"
    dying.write_text(DYING, encoding="utf-8")
    found = {
        "dying": watched.submit("dying", dying),
        "hung": watched.submit("hung", EXAMPLE, *ENDLESS, options=watched.alone),
        "killed": watched.submit("killed", EXAMPLE, *ENDLESS),
        "two-hosts": watched.submit("two-hosts", spread),
        "finished": watched.submit(
            "finished", EXAMPLE, "--steps", "30", "--step-seconds", "0.05", "--checkpoint-every", "10"
        ),
    }
    try:
        yield found
    finally:
        watched.cluster.run("scancel", *(str(job.job_id) for job in found.values()))


@pytest.fixture(scope="module", autouse=True)
def steps(jobs: dict[str, TrainingJob]) -> dict[str, int]:
    """Break the two that come back; the steps where they broke, by run."""
    for name, number in (("hung", signal.SIGSTOP), ("killed", signal.SIGKILL)):
        jobs[name].has_passed(30)
        jobs[name].signal_rank(1, number)
    return {name: jobs[name].step for name in ("hung", "killed")}


def test_ranks_on_two_hosts_that_their_user_cancels_stay_cancelled(
    watched: WatchedCluster, jobs: dict[str, TrainingJob]
) -> None:
    job = jobs["two-hosts"]
    job.has_passed(5)
    wait_until(lambda: read_rank(job.folder, 1) is not None, "rank 1 trains")
    watched.cluster.run("scancel", str(job.job_id))
    job.wait_for_state("CANCELLED")
    # This exporter does not read SLURM, and shows what the ranks could tell.
    incident = watched.wait_for_incident("two-hosts", alert="TrainRunFailed", state="SUPPRESSED", action="none")
    assert "CANCELLED" in incident["reason"]
    watched.stayed_down(job, "CANCELLED")


def test_a_killed_rank_leads_to_a_restart_from_the_checkpoint(
    watched: WatchedCluster, jobs: dict[str, TrainingJob], steps: dict[str, int]
) -> None:
    watched.came_back(jobs["killed"], "crash", steps["killed"])
    assert watched.incidents("killed")[0]["alert"] == "TrainRunFailed"


def test_a_hung_rank_leads_to_a_restart_from_the_checkpoint(
    watched: WatchedCluster, jobs: dict[str, TrainingJob], steps: dict[str, int]
) -> None:
    watched.came_back(jobs["hung"], "stall", steps["hung"])
    assert watched.incidents("hung")[0]["alert"] == "TrainRunStalled"


def test_a_completed_run_is_not_restarted_whatever_alerts_and_record_claim(
    watched: WatchedCluster, jobs: dict[str, TrainingJob]
) -> None:
    finished = jobs["finished"]
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
    watched.stayed_down(finished, "COMPLETED")


def test_a_training_that_always_dies_is_restarted_as_often_as_allowed_and_then_a_person_is_paged(
    watched: WatchedCluster, jobs: dict[str, TrainingJob]
) -> None:
    dying = jobs["dying"]
    watched.wait_for_alert("TrainRunRestartExhausted", "dying", seconds=240)

    def paged() -> bool:
        texts = map(str, watched.messages())
        return any("TrainRunRestartExhausted" in text and "dying" in text for text in texts)

    wait_until(paged, "a message about it")
    last = watched.wait_for_incident("dying", state="ESCALATED")
    assert last["budget"] == {"used": CRASH_RESTARTS, "limit": CRASH_RESTARTS, "left": 0}
    assert dying.starts == 1 + CRASH_RESTARTS
    job = watched.cluster.job(dying.job_id)
    assert job is not None
    assert (job.state, job.restarts) == ("FAILED", CRASH_RESTARTS)
    assert len(dying.attempts) == 1 + CRASH_RESTARTS
