"""What SLURM ends for the sake of others, or of a limit, is no failure: it costs no restart, and nobody is paged."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest

from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import TAKEN
from tests.waiting import wait_until
from trainwarden.record.store import UNKNOWN_END
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]


def take_node(acting: ActingRemediator) -> Training:
    """Submit a job that needs the node of the others, and has priority."""
    urgent = acting.submit("preempts", "--partition=urgent", f"--nodelist={TAKEN[0]}", "--exclusive")
    urgent.alerts = False
    return urgent


def closed_without_a_call(acting: ActingRemediator, training: Training, why: str) -> None:
    """The incident is over, pages nobody, and has cost nothing."""
    acting.until(lambda: acting.over(training))
    [incident] = acting.incidents(training)
    assert (incident.state, incident.paging) == (State.SUPPRESSED, False), acting.report()
    assert why in incident.reason, acting.report()
    assert acting.store.calls.of_job("slurm", str(training.job_id)) == []
    assert acting.store.past_restarts(training.run_id, "") == []


@pytest.mark.parametrize(
    "failure", [None, *(pytest.param(each, marks=pytest.mark.nightly) for each in (UNKNOWN_END, "peer_reset"))]
)
def test_a_preempted_job_that_is_cancelled_is_left(acting: ActingRemediator, failure: str | None) -> None:
    training = acting.submit("preempted-cancelled", "--partition=cancel", f"--nodelist={TAKEN[0]}", "--exclusive")
    training.failure, training.alerts = failure, False
    take_node(acting)
    training.alerts = True
    closed_without_a_call(acting, training, "PREEMPTED")
    assert training.starts == [0]


def test_a_preempted_job_that_slurm_requeues_is_left_to_slurm(acting: ActingRemediator) -> None:
    training = acting.submit("preempted-requeued", "--partition=requeue", f"--nodelist={TAKEN[0]}", "--exclusive")
    training.alerts = False
    urgent = take_node(acting)
    training.alerts = True
    closed_without_a_call(acting, training, "has been started again already, and not by the remediator")
    acting.cluster.run("scancel", str(urgent.job_id))
    acting.until(lambda: len(training.starts) > 1)
    assert training.starts == [0, 1], acting.report()


@pytest.mark.nightly
def test_a_job_that_cannot_start_again_before_its_deadline_is_not_ended(acting: ActingRemediator) -> None:
    """SLURM would end it as DEADLINE, as it does where somebody else requeues it."""
    training = acting.submit("preempted-deadline", "--time=2", "--deadline=now+122seconds")
    training.alerts = False
    wait_until(lambda: _room(acting, training) < 120, acting.report)
    training.alerts = True
    closed_without_a_call(acting, training, "cannot start again before its --deadline")
    training.alerts = False
    acting.cluster.run("scontrol", "requeue", str(training.job_id))
    wait_until(acting.cluster.in_state(training.job_id, "DEADLINE"), acting.report)
    assert training.starts == [0]


def _room(acting: ActingRemediator, training: Training) -> float:
    """The seconds that are left until the deadline of a job."""
    shown = acting.cluster.run("scontrol", "show", "job", str(training.job_id))
    deadline = re.search(r"Deadline=(\S+)", shown)
    assert deadline is not None, shown
    return datetime.fromisoformat(deadline[1]).timestamp() - time.time()


@pytest.mark.nightly
def test_a_limit_is_no_failure_where_the_ranks_were_ended_by_it(acting: ActingRemediator) -> None:
    """SLURM's shortest limit is a minute. Where the end was not recorded, the policy for stalls decides."""
    limited = acting.submit("preempted-limited", "--time=1", "--overcommit")
    silent = acting.submit("preempted-silent", "--time=1", "--overcommit")
    late = acting.submit("preempted-late", "--overcommit", "--deadline=now+70seconds")
    limited.failure, late.failure = UNKNOWN_END, UNKNOWN_END
    limited.alerts = silent.alerts = late.alerts = False
    for each in (limited, silent):
        wait_until(acting.cluster.in_state(each.job_id, "TIMEOUT"), acting.report, timeout=200)
    wait_until(acting.cluster.in_state(late.job_id, "TIMEOUT"), acting.report, timeout=200)
    limited.alerts = late.alerts = True
    closed_without_a_call(acting, limited, "itself: TIMEOUT, its time limit is used up")
    # SLURM has cut its limit down, and shows TIMEOUT, too; once more it cannot start.
    closed_without_a_call(acting, late, "itself: DEADLINE, its --deadline is reached")
    silent.alerts = True
    acting.until(lambda: acting.over(silent))
    assert silent.starts == [0, 1], acting.report()
