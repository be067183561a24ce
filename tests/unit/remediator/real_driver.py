"""A real driver in the world of simulation.py: what it reads is its own, what becomes of its calls is that world's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from tests.unit.remediator.fake_driver import FakeDriver
from tests.unit.remediator.simulated_cluster import Cluster
from trainwarden_remediator.drivers.driver import Driver, Reading, RestartTarget
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Incident

if TYPE_CHECKING:
    from typing_extensions import Self


class RealDriver(FakeDriver):
    """Reads through snapshots of the driver `whole`; see `FakeDriver` for the rest."""

    def __init__(self, clusters: Sequence[Cluster], durable: Callable[[str], Incident | None], whole: Driver) -> None:
        super().__init__(clusters, durable)
        self._whole = whole
        self._real = whole.snapshot()

    def snapshot(self, job_ids: Collection[str] = ()) -> Self:
        super().snapshot(job_ids)
        self._real = self._whole.snapshot(job_ids)
        return self

    def jobs(self) -> Any:
        return self._real.jobs()

    def job(self, job_id: str) -> Reading:
        return self._real.job(job_id)

    def boot(self) -> str | Unknown:
        return self._real.boot()

    def submitted(self, target: RestartTarget) -> Any:
        return self._real.submitted(target)
