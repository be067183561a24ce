"""How the collector of the clock is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import whole

if TYPE_CHECKING:
    from trainwarden_exporter.core.spec import Context


def create(context: Context) -> Sampler:
    """Return what samples it."""
    from trainwarden_exporter.collectors.clock.collector import ClockCollector  # noqa: PLC0415  # for this collector alone

    return Sampler(whole(ClockCollector(), context.interval, context.timeout))


SPEC = CollectorSpec(
    name="clock",
    help="how far the clock is off",
    interval="15s",
    timeout="5s",
    create=create,
)
