"""The canary of the acting path: a job that breaks on schedule and is healed as any other; when it last was.

It has only the name in common with the mode canary of `modes`, in which a part of all runs is acted upon.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden_remediator.database.database import reading
from trainwarden_remediator.database.schema import about, incidents
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.world import Clock

# Reserved: the run of this id counts in no budget of others.
RUN_ID = "trainwarden-canary"
POLICY = "canary"
_EXPECTED = "canary_expected"
_P = "trainwarden_remediator_canary"


class CanaryHealings:
    """The metrics of the canary, by what is on record.

    Args:
        engine: of the database.
        clock: the remediator's.
        expected: a canary is kept in this cluster. Since when is stored, so that one that was never healed is noticed.
    """

    def __init__(self, engine: sa.Engine, clock: Clock, *, expected: bool) -> None:
        self._reading = reading(engine)
        self._expected = expected
        key = about.c.key == _EXPECTED
        with engine.begin() as connection:
            known = connection.execute(sa.select(about.c.value).where(key)).first()
            if not expected:
                connection.execute(about.delete().where(key))
            elif known is None:
                connection.execute(about.insert().values(key=_EXPECTED, value=repr(clock.now())))

    def families(self) -> Iterator[Metric]:
        """Return the metrics; none where no canary is expected."""
        if not self._expected:
            return
        done = sa.and_(incidents.c.run_id == RUN_ID, incidents.c.state == State.DONE.value)
        with self._reading.begin() as connection:
            since = connection.execute(sa.select(about.c.value).where(about.c.key == _EXPECTED)).scalar_one()
            healed = connection.execute(sa.select(sa.func.max(incidents.c.updated)).where(done)).scalar_one()
        yield GaugeMetricFamily(
            f"{_P}_expected_since_timestamp_seconds", "Since when a canary is expected.", value=float(since)
        )
        yield GaugeMetricFamily(
            f"{_P}_last_healed_timestamp_seconds",
            "When the canary had last recovered.",
            value=None if healed is None else float(healed),
        )
