"""What people and storms have switched: it lasts until it is switched back, or its time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from trainwarden.record.clock import to_iso
from trainwarden_remediator.database.database import reading
from trainwarden_remediator.database.schema import switches
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.incidents.incident_rows import ON, STORM
from trainwarden_remediator.observe.world import Clock

FREEZE = "freeze"
_RESUMED = "resumed"
_OF_NAME = sa.select(switches).where(switches.c.name == sa.bindparam("of"))
_DELETE = switches.delete().where(switches.c.name == sa.bindparam("name"), switches.c.scope == sa.bindparam("scope"))


@dataclass(frozen=True)
class Switch:
    """One switch. `scope` is the run of a freeze, or the cluster of a storm; empty is everything. Times are Unix."""

    name: str
    scope: str
    value: str
    by: str
    reason: str
    at: float
    until: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether it holds; a storm that a person has ended stays on record."""
        return self.value == ON

    @property
    def text(self) -> str:
        """What is switched, by whom, since when and why."""
        until = f" until {to_iso(self.until)}" if self.until is not None else ""
        done = "frozen" if self.name == FREEZE else self.name
        return clean(f"{done} by {self.by} since {to_iso(self.at)}{until}: {self.reason}", 1000)


class Switches:
    """The table, for any thread."""

    def __init__(self, engine: sa.Engine, clock: Clock) -> None:
        self._engine = engine
        self._reading = reading(engine)
        self._clock = clock

    def frozen(self, run_id: str) -> str | None:
        """Return why nothing may be restarted, by a person's `freeze` of everything or of this run; None if it may."""
        with self._reading.begin() as connection:
            for switch in find(connection, FREEZE, self._clock.now()):
                if switch.scope in ("", run_id):
                    return switch.text
        return None

    def storm(self, cluster: str) -> Switch | None:
        """Return the storm of a cluster; None if there is none."""
        with self._reading.begin() as connection:
            found = (each for each in find(connection, STORM) if each.scope == cluster and each.is_on)
            return next(found, None)

    def storms(self) -> list[Switch]:
        """Return the storms of all clusters."""
        with self._reading.begin() as connection:
            return [each for each in find(connection, STORM) if each.is_on]

    def resumed(self, cluster: str) -> float:
        """Return when a person has last ended a storm of a cluster; 0 if nobody has."""
        with self._reading.begin() as connection:
            times = (each.at for each in find(connection, STORM) if each.scope == cluster and each.value == _RESUMED)
            return max(times, default=0.0)

    def begin_storm(self, cluster: str, reason: str, also: Callable[[sa.Connection], None]) -> None:
        """Begin a storm, and do something else in the same transaction."""
        with self._engine.begin() as connection:
            _set(connection, Switch(STORM, cluster, ON, "the remediator", reason, self._clock.now()))
            also(connection)

    def end_storm(self, cluster: str) -> None:
        """End a storm whose cause has gone."""
        with self._engine.begin() as connection:
            connection.execute(_DELETE, {"name": STORM, "scope": cluster})


def find(connection: sa.Connection, name: str | None = None, now: float | None = None) -> list[Switch]:
    """Return what is switched, of one name or of all; without those whose time was over at `now`."""
    rows = connection.execute(sa.select(switches) if name is None else _OF_NAME, {"of": name})
    found = [Switch(**row._asdict()) for row in rows]
    return [each for each in found if now is None or each.until is None or each.until > now]


def freeze(connection: sa.Connection, run_id: str, by: str, reason: str, now: float, until: float | None) -> None:
    """Let nothing be restarted, of a run or, where `run_id` is empty, at all, until Unix time `until` or `unfreeze`."""
    _set(connection, Switch(FREEZE, run_id, ON, clean(by, 64), clean(reason), now, until))


def unfreeze(connection: sa.Connection, run_id: str) -> bool:
    """End a freeze; return whether there was one."""
    return connection.execute(_DELETE, {"name": FREEZE, "scope": run_id}).rowcount > 0


def resume(connection: sa.Connection, by: str, now: float) -> list[Switch]:
    """End all storms: the restarts that were proposed by now are made. Return what was ended."""
    ended = [each for each in find(connection, STORM) if each.is_on]
    for storm in ended:
        _set(connection, Switch(STORM, storm.scope, _RESUMED, clean(by, 64), storm.reason, now))
    return ended


def _set(connection: sa.Connection, switch: Switch) -> None:
    connection.execute(_DELETE, {"name": switch.name, "scope": switch.scope})
    connection.execute(switches.insert(), vars(switch))
