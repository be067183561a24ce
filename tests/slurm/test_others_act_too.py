"""SLURM, its users and its administrators act in the middle of a restart: theirs stands, and nothing is added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from tests.acting_remediator import settle
from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import LOST, NODES, Cluster
from tests.waiting import wait_until
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]

Acted = dict[str, tuple[ActingRemediator, Training]]
ON_LOST = ("--partition=spare", f"--nodelist={LOST}")


def requeue(training: Training) -> None:
    """Requeue the job as its owner would in the middle of an incident."""
    training.cluster.run("scontrol", "requeue", str(training.job_id))


def lose_node(training: Training) -> None:
    """What slurmctld does when the node does not answer any more: NODE_FAIL, and the job is requeued."""
    training.cluster.run("scontrol", "update", f"NodeName={LOST}", "State=DOWN", "Reason=test")
    training.cluster.run("scontrol", "update", f"NodeName={LOST}", "State=RESUME")


def cancel(training: Training) -> None:
    """Cancel the job as its owner would."""
    training.cluster.run("scancel", str(training.job_id))


def exclude_all(training: Training) -> None:
    """Exclude each node that the job may run on, as its owner would."""
    training.cluster.run("scontrol", "update", f"JobId={training.job_id}", f"ExcNodeList={','.join(NODES)}")


# What happens where, by the name of the run; and the options of its job.
_CASES: dict[str, tuple[str, Callable[[Training], None], tuple[str, ...]]] = {
    "others-requeue": ("prepare: before call", requeue, ()),
    "others-lose-node": ("prepare: before call", lose_node, ON_LOST),
    "others-cancel-running": ("prepare: before call", cancel, ()),
    "others-cancel-held": ("prepare: after call", cancel, ()),
    "others-cancel-unreleased": ("commit: before call", cancel, ()),
    "others-exclude-all": ("commit: before call", exclude_all, ()),
}
_ALONE = {
    "others-array": ("--array=3",),
    "others-heterogeneous": ("--ntasks=1", ":", "--ntasks=1", "--comment=trainwarden:others-heterogeneous"),
}


@pytest.fixture(scope="module")
def acted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acted]:
    """All cases, at the same time: each has its own remediator, which has done what it will."""
    cases: Acted = {}
    remediators = []
    try:
        for name, (point, act, options) in _CASES.items():
            acting = ActingRemediator(cluster, tmp_path_factory.mktemp(name))
            remediators.append(acting)
            training = acting.submit(name, *options)
            acting.at[point] = partial(act, training)
            cases[name] = (acting, training)
        acting = ActingRemediator(cluster, tmp_path_factory.mktemp("others"))
        remediators.append(acting)
        for name, options in _ALONE.items():
            cases[name] = (acting, acting.submit(name, *options))
        settle(remediators)
        yield cases
    finally:
        for each in remediators:
            each.close()


@pytest.mark.parametrize("name", ["others-requeue", "others-lose-node"])
def test_a_job_that_others_requeue_meanwhile_is_started_once(acted: Acted, name: str) -> None:
    acting, training = acted[name]
    assert [each.state for each in acting.incidents(training)] == [State.ADOPTED], acting.report()
    wait_until(lambda: len(training.starts) > 1, acting.report)
    assert training.starts == [0, 1], acting.report()


@pytest.mark.nightly
@pytest.mark.parametrize("act", [requeue, lose_node])
def test_a_job_that_others_requeue_once_it_is_held_is_started_once(
    acting: ActingRemediator, act: Callable[[Training], None]
) -> None:
    training = acting.submit("others-act-late", *ON_LOST)

    def refused() -> None:
        with suppress(RuntimeError):  # it waits already, or is held
            act(training)

    acting.at["prepare: after call"] = refused
    acting.until(lambda: acting.over(training) and len(training.starts) > 1)
    assert training.starts == [0, 1], acting.report()
    assert [each.state for each in acting.incidents(training)] == [State.DONE], acting.report()


@pytest.mark.parametrize("name", [name for name in _CASES if "cancel" in name])
def test_a_job_that_its_user_cancels_in_the_middle_of_a_restart_stays_cancelled(acted: Acted, name: str) -> None:
    acting, training = acted[name]
    assert [(each.state, each.paging) for each in acting.incidents(training)] == [(State.ADOPTED, False)]
    wait_until(training.cluster.in_state(training.job_id, "CANCELLED"), acting.report)
    assert training.starts == [0], acting.report()


@pytest.mark.nightly
def test_a_suspended_job_is_left_until_it_is_resumed(acting: ActingRemediator) -> None:
    training = acting.submit("others-suspend")
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


def test_a_task_of_an_array_is_restarted_as_any_job(acted: Acted) -> None:
    acting, training = acted["others-array"]
    assert [each.state for each in acting.incidents(training)] == [State.DONE], acting.report()
    assert training.starts == [0, 1], acting.report()
    assert [call.verb for call in acting.store.calls.of_job("slurm", str(training.job_id))] == ["prepare", "commit"]


def test_a_heterogeneous_job_is_refused_with_the_reason(acted: Acted) -> None:
    acting, training = acted["others-heterogeneous"]
    [incident] = acting.incidents(training)
    assert incident.state is State.SUPPRESSED, acting.report()
    assert "is heterogeneous: its parts cannot be requeued one by one" in incident.reason
    assert acting.store.calls.of_job("slurm", str(training.job_id)) == []
    assert training.starts == [0]


def test_a_start_that_no_node_may_run_says_so(acted: Acted) -> None:
    """Its user has excluded each node; what is excluded stays, and SLURM's reason is on record."""
    acting, training = acted["others-exclude-all"]
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging) == (State.ESCALATED, True), acting.report()
    # SLURM holds such a job itself.
    assert "does not begin by itself: BadConstraints; it avoids n1, n2, n3" in incident.reason, acting.report()
    assert training.starts == [0]
