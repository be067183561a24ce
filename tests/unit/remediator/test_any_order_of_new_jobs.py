"""The machines of histories.py for jobs that come back under a new id, and for the drivers `ray` and `slurm`."""

from __future__ import annotations

import os

import pytest

from tests.unit.remediator.histories import AnyOrder, run
from tests.unit.remediator.simulated_ray import SimulatedRayDriver
from tests.unit.remediator.simulated_slurm import SimulatedSlurmDriver
from trainwarden_remediator.drivers.driver import Shape


class AnyOrderOfResubmits(AnyOrder):
    """Submitted held, and released."""

    shape = Shape.RESUBMIT

    def __init__(self) -> None:
        super().__init__()
        for cluster in self.simulation.clusters:
            cluster.shape = self.shape


class AnyOrderOfSubmits(AnyOrderOfResubmits):
    """Submitted under an id of the attempt, which starts at once."""

    shape = Shape.SUBMIT


class AnyOrderOfRayJobs(AnyOrderOfSubmits):
    """The driver `ray` itself, with faults of its requests. Ray knows no users."""

    user = None

    def __init__(self) -> None:
        super().__init__()
        simulation = self.simulation
        simulation.driver = SimulatedRayDriver(simulation.clusters, simulation.durable)
        simulation.driver.forbidden = self._why_forbidden
        simulation.restart()

    def a_person_holds_a_job_as_soon_as_it_waits(self, number: int, after_release: bool) -> None:
        """Be no rule of this machine: Ray holds no jobs."""


class AnyOrderOfSlurmJobs(AnyOrder):
    """The driver `slurm` itself, with faults of its commands; of jobs that may be requeued."""

    user = os.getuid()

    def __init__(self) -> None:
        super().__init__()
        simulation = self.simulation
        folder = self.folder / "submissions" if simulation.cluster.shape is not None else None
        simulation.driver = SimulatedSlurmDriver(simulation.cluster, simulation.durable, folder)
        simulation.driver.forbidden = self._why_forbidden
        simulation.restart()


class AnyOrderOfSlurmResubmits(AnyOrderOfSlurmJobs, AnyOrderOfResubmits):
    """The same of jobs that may not, and are submitted again."""


LONG = pytest.param(1000, marks=pytest.mark.long)


@pytest.mark.parametrize("machine", [AnyOrderOfResubmits, AnyOrderOfSubmits])
@pytest.mark.parametrize("histories", [15, LONG])
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_order_of_events_starts_anything_twice(machine: type[AnyOrder], histories: int) -> None:
    run(machine, histories)


@pytest.mark.parametrize("histories", [5, LONG])
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [AnyOrderOfRayJobs, AnyOrderOfSlurmJobs, AnyOrderOfSlurmResubmits])
def test_no_order_of_events_starts_a_job_twice_by_a_real_driver(machine: type[AnyOrder], histories: int) -> None:
    run(machine, histories)
