"""slurmctld is killed around the two calls of a restart, and comes back with what it had saved: some seconds less.

Or it stands still, and what it was asked takes effect when it goes on.

The oracle is the file of the job, to which each start appends its restart count.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import OwnCluster, running_cluster
from tests.slurm.programs import Programs
from tests.slurm.test_actions import Evaluations
from tests.waiting import wait_until
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def own_cluster(slurm_programs: Programs) -> Iterator[OwnCluster]:
    """A cluster whose controller dies: no other test may depend on it."""
    with running_cluster(slurm_programs) as started:
        yield started


@pytest.fixture
def acting(own_cluster: OwnCluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """The remediator on that cluster."""
    made = ActingRemediator(own_cluster, tmp_path / "state")
    try:
        yield made
    finally:
        made.close()


def submit(acting: ActingRemediator, *options: str) -> Training:
    """Submit a training, and wait until slurmctld has saved that it runs."""
    training = acting.submit("run-1", *options)
    # A change is what it saves for; this one changes nothing.
    acting.cluster.run("scontrol", "update", f"JobId={training.job_id}", "Comment=trainwarden:run-1")
    changed, saved = time.time(), acting.cluster.folder / "state" / "job_state"
    wait_until(lambda: saved.exists() and saved.stat().st_mtime > changed, "slurmctld saves its state")
    return training


def kill_and_start(cluster: OwnCluster) -> None:
    """SIGKILL; the controller starts again at once, as its service would."""
    cluster.kill_slurmctld()
    cluster.start_slurmctld()


def given_at_most_once(acting: ActingRemediator, training: Training) -> None:
    """One start at most was given, and the run trains or a person is paged."""
    calls = acting.store.calls.of_job("slurm", str(training.job_id))
    assert sum(call.verb == "commit" for call in calls) <= 1, acting.report()
    assert training.starts.count(1) <= 1, acting.report()
    assert not [count for count in training.starts if count > 1], acting.report()
    last = acting.incidents(training)[-1]
    if last.state is State.DONE:
        assert training.starts[-1] == 1, acting.report()
    else:
        assert (last.state, last.paging) == (State.ESCALATED, True), acting.report()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("prepare: before call", marks=pytest.mark.nightly),
        "prepare: after call",
        "commit: before call",
        "commit: after call",
    ],
)
def test_a_controller_that_is_killed_at_a_call_leads_to_one_start_at_most(
    acting: ActingRemediator, own_cluster: OwnCluster, point: str
) -> None:
    training = submit(acting)
    acting.at[point] = lambda: kill_and_start(own_cluster)
    acting.until(lambda: acting.over(training))
    assert not acting.at, "the controller was killed"
    given_at_most_once(acting, training)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["submit: after call", "commit: after call"])
def test_a_submission_that_was_acknowledged_and_lost_leads_to_one_start_at_most(
    own_cluster: OwnCluster, tmp_path: Path, point: str
) -> None:
    """Of a job that cannot be requeued: the held job, or that it was released, may be forgotten."""
    acting = ActingRemediator(own_cluster, tmp_path / "state", resubmit=True)
    try:
        training = submit(acting, "--no-requeue")
        acting.at[point] = lambda: kill_and_start(own_cluster)
        acting.until(lambda: acting.over(training))
        assert not acting.at, "the controller was killed"
        assert len(training.starts_of_jobs) <= 2, acting.report()
        last = acting.incidents(training)[-1]
        if last.state is State.DONE:
            assert len(training.starts_of_jobs) == 2, acting.report()
        else:
            assert (last.state, last.paging) == (State.ESCALATED, True), acting.report()
    finally:
        acting.close()


@pytest.mark.nightly
def test_a_controller_that_is_killed_at_both_calls_leads_to_one_start_at_most(
    acting: ActingRemediator, own_cluster: OwnCluster
) -> None:
    training = submit(acting)
    for point in ("prepare: after call", "commit: after call"):
        acting.at[point] = lambda: kill_and_start(own_cluster)
    acting.until(lambda: acting.over(training))
    given_at_most_once(acting, training)


@pytest.mark.nightly
def test_a_restart_that_is_forgotten_once_it_waits_is_not_given_again(
    acting: ActingRemediator, own_cluster: OwnCluster
) -> None:
    """The released job waits until its old credential has expired; then the controller forgets the release."""
    training = submit(acting)
    acting.until(lambda: acting.incidents(training) and acting.incidents(training)[0].state is State.VERIFYING)
    kill_and_start(own_cluster)
    acting.until(lambda: acting.over(training))
    given_at_most_once(acting, training)


@pytest.mark.nightly
def test_a_capture_ends_in_its_time_although_the_controller_is_silent(own_cluster: OwnCluster, tmp_path: Path) -> None:
    """`scontrol show job` of the capture gets no answer: job.txt describes no job, and the restart follows."""
    acting = ActingRemediator(own_cluster, tmp_path / "state", capture_timeout=6.0)
    try:
        training = acting.submit("run-1")
        acting.at["capture"] = lambda: os.kill(own_cluster.slurmctld, signal.SIGSTOP)
        try:
            acting.until(lambda: acting.incidents(training) and acting.incidents(training)[0].capture)
            captured = acting.incidents(training)[0]
            assert captured.capture is not None
            shown = (Path(captured.capture) / "job.txt").read_text()
            assert "JobId=" not in shown, shown
            assert training.starts == [0]
        finally:
            os.kill(own_cluster.slurmctld, signal.SIGCONT)
        acting.until(lambda: acting.over(training))
        assert training.starts == [0, 1], acting.report()
    finally:
        acting.close()


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["prepare: before call", "submit: before call", "commit: before call"])
def test_a_controller_that_gives_no_answer_leads_to_one_start(
    own_cluster: OwnCluster, tmp_path: Path, point: str
) -> None:
    """The commands give up before it goes on, and their calls take effect when it does."""
    acting = ActingRemediator(own_cluster, tmp_path / "state", resubmit=True)
    try:
        training = acting.submit(f"silent-{point.partition(':')[0]}", "--no-requeue")
        pid = own_cluster.slurmctld

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(14.0, os.kill, (pid, signal.SIGCONT)).start()

        acting.at[point] = stop
        acting.until(lambda: acting.over(training), 180)
        assert acting.at == {}
        acting.came_back_once(training)
    finally:
        acting.close()


@pytest.mark.nightly
def test_a_controller_that_answers_too_late_leads_to_no_second_job_of_an_action(
    own_cluster: OwnCluster, tmp_path: Path
) -> None:
    evaluations = Evaluations(own_cluster, tmp_path)
    evaluations.look()
    evaluations.saved(500)
    os.kill(own_cluster.slurmctld, signal.SIGSTOP)
    try:
        evaluations.look()
    finally:
        os.kill(own_cluster.slurmctld, signal.SIGCONT)
    evaluations.look()
    (claim,) = evaluations.claims()
    assert claim["state"] == "in_doubt"
    assert "exit status 1" in claim["detail"]  # sbatch's own, not the time limit of the action
    jobs = own_cluster.run("squeue", "--states=all", "--noheader", "--format=%k").splitlines()
    assert jobs.count(f"trainwarden-action:{claim['id']}") <= 1
