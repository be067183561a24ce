"""A job that slurmctld has forgotten is found in the accounting of a real slurmdbd: its end decides, at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.accounting import Accounting, find_accounting_programs
from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import OwnCluster, running_cluster
from tests.slurm.programs import Programs
from tests.waiting import wait_until
from trainwarden.stack.debian import PackagesUnavailable
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(420)]

# slurmctld removes what is older than MinJobAge once in a while alone.
_FORGOTTEN_SECONDS = 200.0


@pytest.fixture(scope="module")
def accounted(slurm_programs: Programs) -> Iterator[OwnCluster]:
    """A cluster with accounting, whose controller forgets jobs as early as it can."""
    try:
        accounting = Accounting(find_accounting_programs())
    except PackagesUnavailable as error:
        pytest.skip(f"slurmdbd and MariaDB cannot be had: {error}")
    settings = {"MinJobAge": "2", "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    partitions = ["low PriorityTier=1 PreemptMode=CANCEL", "high PriorityTier=10 PreemptMode=OFF"]
    with running_cluster(slurm_programs, settings, partitions, accounting) as started:
        yield started


@pytest.fixture
def acting(accounted: OwnCluster, tmp_path: Path) -> Iterator[ActingRemediator]:
    """The remediator on that cluster."""
    made = ActingRemediator(accounted, tmp_path / "state")
    try:
        yield made
    finally:
        made.close()


def submit(acting: ActingRemediator, run_id: str, *options: str) -> Training:
    """A training whose alert fires only once it is forgotten."""
    training = acting.submit(run_id, *options)
    training.alerts = False
    return training


def forgotten(acting: ActingRemediator) -> None:
    """Wait until slurmctld lists none of the trainings; then their alerts fire."""
    ids = {each.job_id for each in acting.trainings}
    wait_until(lambda: not any(acting.cluster.job(job_id) for job_id in ids), acting.report, timeout=_FORGOTTEN_SECONDS)
    for each in acting.trainings:
        each.alerts = True


def test_each_end_is_found_and_what_failed_pages_at_once(acting: ActingRemediator) -> None:
    ends = {
        "COMPLETED": submit(acting, "completed", "--nodelist=n3"),
        "FAILED": submit(acting, "failed", "--nodelist=n3"),
        "CANCELLED": submit(acting, "cancelled", "--nodelist=n3"),
        "NODE_FAIL": submit(acting, "node", "--no-requeue", "--nodelist=n2", "--exclusive"),
        "PREEMPTED": submit(acting, "preempted", "--partition=low", "--nodelist=n1", "--exclusive"),
    }
    run = acting.cluster.run
    ends["COMPLETED"].end(0)
    ends["FAILED"].end(1)
    run("scancel", str(ends["CANCELLED"].job_id))
    run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    run("scontrol", "update", "NodeName=n2", "State=RESUME")
    urgent = submit(acting, "urgent", "--partition=high", "--nodelist=n1", "--exclusive")
    run("scancel", str(urgent.job_id))
    forgotten(acting)
    acting.trainings.remove(urgent)
    acting.until(lambda: all(acting.over(each) for each in acting.trainings))
    for end, training in ends.items():
        [incident] = acting.incidents(training)
        assert end in incident.reason, acting.report()
        failed = end in ("FAILED", "NODE_FAIL")
        expected = (State.ESCALATED, True) if failed else (State.SUPPRESSED, False)
        assert (incident.state, incident.paging) == expected, acting.report()
        assert training.starts == [0]
        assert acting.store.calls.of_job("slurm", str(training.job_id)) == []


def test_a_failure_that_slurmdbd_hears_of_late_pages_once_it_has(
    acting: ActingRemediator, accounted: OwnCluster
) -> None:
    """It is down while the job ends and is forgotten: until it is back the end is unknown, and nothing is closed."""
    training = submit(acting, "late", "--nodelist=n3")
    assert accounted.run("sacct", "--noheader", f"--jobs={training.job_id}")
    accounted.kill("slurmdbd")
    training.end(1)
    forgotten(acting)
    acting.until(lambda: acting.store.pending() and acting.store.pending()[0].waits_for)
    assert "slurmctld no longer lists job" in (acting.store.pending()[0].waits_for or "")
    assert acting.incidents(training) == []
    assert accounted.accounting is not None
    accounted.accounting.start_slurmdbd(accounted)
    acting.until(lambda: acting.over(training), 200)
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging) == (State.ESCALATED, True), acting.report()
    assert "is FAILED" in incident.reason, acting.report()
