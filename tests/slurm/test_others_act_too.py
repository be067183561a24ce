"""SLURM, its users and its administrators act in the middle of a restart: theirs stands, and nothing is added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import Cluster
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def acting(cluster: Cluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """The remediator on the cluster of all tests."""
    made = ActingRemediator(cluster, tmp_path / "state")
    try:
        yield made
    finally:
        made.close()


def requeue(training: Training) -> None:
    """Requeue the job as its owner would in the middle of an incident."""
    training.cluster.run("scontrol", "requeue", str(training.job_id))


def lose_node(training: Training) -> None:
    """What slurmctld does when the node does not answer any more: NODE_FAIL, and the job is requeued."""
    job = training.cluster.job(training.job_id)
    assert job is not None
    training.cluster.run("scontrol", "update", f"NodeName={job.nodes}", "State=DOWN", "Reason=test")
    training.cluster.run("scontrol", "update", f"NodeName={job.nodes}", "State=RESUME")


def cancel(training: Training) -> None:
    """Cancel the job as its owner would."""
    training.cluster.run("scancel", str(training.job_id))


@pytest.mark.parametrize("act", [requeue, lose_node])
@pytest.mark.parametrize(
    "point", ["prepare: before call", pytest.param("prepare: after call", marks=pytest.mark.nightly)]
)
def test_a_job_that_others_requeue_meanwhile_is_started_once(
    acting: ActingRemediator, act: Callable[[Training], None], point: str
) -> None:
    training = acting.submit("run-1")

    def refused() -> None:
        try:
            act(training)
        except RuntimeError:
            assert point == "prepare: after call"  # it waits already, or is held

    acting.at[point] = refused
    acting.until(lambda: acting.over(training) and len(training.starts) > 1)
    assert training.starts == [0, 1], acting.report()
    expected = State.ADOPTED if point == "prepare: before call" else State.DONE
    assert [each.state for each in acting.incidents(training)] == [expected], acting.report()


@pytest.mark.parametrize("point", ["prepare: before call", "prepare: after call", "commit: before call"])
def test_a_job_that_its_user_cancels_in_the_middle_of_a_restart_stays_cancelled(
    acting: ActingRemediator, point: str
) -> None:
    training = acting.submit("run-1")
    acting.at[point] = lambda: cancel(training)
    acting.until(lambda: acting.over(training))
    job = training.cluster.job(training.job_id)
    assert job is not None
    assert (training.starts, job.state) == ([0], "CANCELLED"), acting.report()
    assert [(each.state, each.paging) for each in acting.incidents(training)] == [(State.ADOPTED, False)]


@pytest.mark.nightly
def test_a_suspended_job_is_left_until_it_is_resumed(acting: ActingRemediator) -> None:
    training = acting.submit("run-1")
    training.alerts = False
    training.cluster.run("scontrol", "suspend", str(training.job_id))
    training.alerts = True
    acting.until(lambda: [each.waits_for for each in acting.store.pending()] not in ([], [None]))
    [pending] = acting.store.pending()
    assert f"the scheduler reports job {training.job_id} as SUSPENDED" in (pending.waits_for or "")
    assert acting.store.calls.of_job("slurm", str(training.job_id)) == []
    training.cluster.run("scontrol", "resume", str(training.job_id))
    acting.until(lambda: acting.over(training))
    assert training.starts == [0, 1], acting.report()


def test_a_task_of_an_array_is_restarted_as_any_job(acting: ActingRemediator) -> None:
    training = acting.submit("run-1", "--array=3")
    acting.until(lambda: acting.over(training))
    assert [each.state for each in acting.incidents(training)] == [State.DONE], acting.report()
    assert training.starts == [0, 1], acting.report()
    assert [call.verb for call in acting.store.calls.of_job("slurm", str(training.job_id))] == ["prepare", "commit"]


def test_a_heterogeneous_job_is_refused_with_the_reason(acting: ActingRemediator) -> None:
    training = acting.submit("run-1", "--ntasks=1", ":", "--ntasks=1", "--comment=trainwarden:run-1")
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert incident.state is State.SUPPRESSED, acting.report()
    assert "is heterogeneous: its parts cannot be requeued one by one" in incident.reason
    assert acting.store.calls.of_job("slurm", str(training.job_id)) == []
    assert training.starts == [0]


def test_a_start_that_no_node_may_run_says_so(acting: ActingRemediator) -> None:
    """Its user has excluded each node; what is excluded stays, and SLURM's reason is on record."""
    training = acting.submit("run-1")

    def exclude_all() -> None:
        training.cluster.run("scontrol", "update", f"JobId={training.job_id}", "ExcNodeList=n1,n2,n3")

    acting.at["commit: before call"] = exclude_all
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging) == (State.ESCALATED, True), acting.report()
    # SLURM holds such a job itself.
    assert "does not begin by itself: BadConstraints; it avoids n1, n2, n3" in incident.reason, acting.report()
    assert training.starts == [0]
