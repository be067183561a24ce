"""The remediator is killed around the two calls of a restart on a real SLURM, and another goes on with its database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acting_remediator import settle
from tests.slurm.acting_remediator import ActingRemediator, Training
from tests.slurm.cluster import Cluster
from trainwarden_remediator.incidents.incident import State

pytestmark = [pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(300)]

POINTS = ("prepare: before call", "prepare: after call", "commit: before call", "commit: after call")
SUBMISSION = "submit: after call"


@pytest.fixture(scope="module")
def revived(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[ActingRemediator, Training]]]:
    """The second remediator by the point at which the first was killed, and what it has brought back."""
    found: dict[str, tuple[ActingRemediator, Training]] = {}
    made = []
    try:
        for number, point in enumerate((*POINTS, SUBMISSION)):
            folder, resubmit = tmp_path_factory.mktemp("state"), point == SUBMISSION
            first = ActingRemediator(cluster, folder, resubmit=resubmit)
            made.append(first)
            training = first.submit(f"revived-{number}", *(["--no-requeue"] if resubmit else []))
            first.die_at(point, training)
            second = ActingRemediator(cluster, folder, trainings=[training], resubmit=resubmit)
            made.append(second)
            found[point] = (second, training)
        settle([each for each, _ in found.values()])
        yield found
    finally:
        for each in made:
            each.close()


@pytest.mark.parametrize("point", POINTS)
def test_the_job_starts_once_more(revived: dict[str, tuple[ActingRemediator, Training]], point: str) -> None:
    acting, training = revived[point]
    assert [each.state for each in acting.incidents(training)] == [State.DONE], acting.report()
    assert training.starts == [0, 1], acting.report()


def test_a_job_that_was_submitted_again_before_the_kill_is_not_submitted_twice(
    revived: dict[str, tuple[ActingRemediator, Training]],
) -> None:
    acting, training = revived[SUBMISSION]
    acting.came_back_once(training)
