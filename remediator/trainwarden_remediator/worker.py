"""The loop: poll, examine pending alerts, advance open incidents. One thread, so no two steps ever race."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainwarden_remediator.act.relief import Relief
from trainwarden_remediator.act.remediate import Remediator
from trainwarden_remediator.act.storm import Storms
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.database.database import DatabaseUnusable
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.examine import Examiner
from trainwarden_remediator.incidents.alert_rows import Pending
from trainwarden_remediator.incidents.incident import Alert, Incident, State
from trainwarden_remediator.incidents.roots import order
from trainwarden_remediator.metrics import Metrics
from trainwarden_remediator.observe.snapshot import Snapshot, Subject
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

log = logging.getLogger(__name__)

_MAX_STEPS = 20
_PRUNE_SECONDS = 3600.0
_FRESH_SECONDS = 60.0  # after a start was given, a reading of the schedulers serves for one interval alone
_UNDER_WAY = (State.CAPTURING, State.PREPARING, State.IN_DOUBT, State.PREPARED, State.COMMITTED)


class Worker:
    """Ticks every `interval` seconds, every `busy_interval` while a restart is under way, and at once when `woken`."""

    def __init__(
        self,
        snapshot: Snapshot,
        store: Store,
        examiner: Examiner,
        remediator: Remediator,
        metrics: Metrics,
        timers: Timers,
        sweeper: Sweeper,
        storms: Storms,
        woken: threading.Event,
        *,
        interval: float,
        busy_interval: float,
        before_tick: Callable[[], None] = lambda: None,
        drain: Callable[[], object] = lambda: None,
    ) -> None:
        self._world = world = snapshot.world
        self._snapshot = snapshot
        self._store = store
        self._examiner = examiner
        self._remediator = remediator
        self._metrics = metrics
        self._timers = timers
        self._before_tick = before_tick
        self._drain = drain
        self._relief = Relief(world, store)
        self._sweeper = sweeper
        self._storms = storms
        self._interval = interval
        self._busy_interval = min(busy_interval, interval)
        self._wake = woken
        self._stopping = False
        self._last_tick: float | None = None
        self._ticked = False
        self._problems: set[str] = set()
        self._known_problems: set[str] = set()
        self._pruned: float | None = None
        # By incident, the reading that served when the answer of its last call was taken.
        self._old_readings: dict[str, int | None] = {}
        self._thread = threading.Thread(target=self._run, name="worker")

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def wake(self) -> None:
        """Tick now."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the current step, then stop."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def alive(self) -> bool:
        """Return whether the loop has ticked lately without an error, and the database takes what is stored."""
        last = self._last_tick
        recent = last is not None and self._world.clock.monotonic() - last < 120
        return self._thread.is_alive() and recent and self._ticked and self._store.transactions.is_writable

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            busy = self.run_once()
            self._last_tick = self._world.clock.monotonic()
            if not self._stopping:
                self._wake.wait(self._busy_interval if busy else self._interval)
        self._remediator.finish()
        self._take_answers()

    def run_once(self) -> bool:
        """Run one tick; return whether a restart is under way. Count each error, log it once, and go on."""
        self._problems.clear()
        try:
            busy, self._ticked = self.tick(), True
        except Exception as error:  # noqa: BLE001  # the loop must survive any error of one tick
            busy, self._ticked = False, False
            self._problem("the loop", error)
        if self._known_problems and not self._problems:
            log.info("the loop works again")
        self._known_problems = set(self._problems)
        self._metrics.ticked(self._world.clock.now(), success=not self._problems)
        return busy

    def _problem(self, what: str, error: Exception) -> None:
        unusable = isinstance(error, DatabaseUnusable)  # whatever found it out first; its text says all
        name = str(error) if unusable else f"{what}: {type(error).__name__}"
        if name not in self._known_problems | self._problems:
            log.error("%s failed, and is tried again: %s", what, error, exc_info=None if unusable else error)
        self._problems.add(name)

    def tick(self) -> bool:
        """Poll, examine and advance once; return whether a restart is under way."""
        self._before_tick()
        self._store.transactions.check_writable()
        firing = self._snapshot.poll()
        self._metrics.polled(self._world.clock.now(), firing.reason if isinstance(firing, Unknown) else None)
        if not isinstance(firing, Unknown):
            self._store.observe(firing)
            self._prune()
        self._take_answers()
        pending = self._store.pending()
        self._snapshot.begin(
            self._subjects(pending),
            serves=self._serves(pending),
            evidence=max(
                (each.received if (at := each.alert.starts_at) is None else at for each in pending), default=0.0
            ),
            whole=bool(pending) or self._may_end_attempts(),
        )
        waiting = not isinstance(firing, Unknown) and self._examine({alert.key: alert for alert in firing})
        judged = self._isolated("the judgement of storms", self._storms.watch)
        self._isolated("the sweep", self._sweeper.sweep)
        self._isolated("the drain of nodes", self._drain)
        under_way = self._advance_all(begin=judged)
        self._isolated("the end of pages", self._relief.end_pages)
        self._timers.keep()
        return waiting or under_way

    def _isolated(self, what: str, do: Callable[[], object]) -> bool:
        """Do one part of a tick; return whether it did not fail."""
        try:
            do()
        except Exception as error:  # noqa: BLE001  # a part that fails must not keep restarts half done
            self._problem(what, error)
            return False
        return True

    def _take_answers(self) -> None:
        """Take the answers of calls; what is read after that is newer."""
        for incident_id, answer in self._remediator.answers().items():
            try:
                incident = self._store.incident(incident_id)
                self._old_readings[incident_id] = self._snapshot.reading(incident.scheduler)
                self._remediator.answered(incident, answer)
            except Exception as error:  # noqa: BLE001, PERF203  # an answer that is lost leaves that call in doubt
                self._problem(f"incident {incident_id}", error)

    def _subjects(self, awaiting: Sequence[Pending]) -> Iterator[Subject]:
        for pending in awaiting:
            alert = pending.alert
            if alert.run_id is not None:
                yield Subject(alert.run_id, alert.label("scheduler"), alert.label("job_id"))
        for incident in (*self._store.open_incidents(), *self._store.escalations()):
            if incident.attempt is not None:
                yield Subject(incident.run_id, incident.scheduler, incident.job_id)

    def _serves(self, pending: Sequence[Pending]) -> float | None:
        """Return for how many seconds a reading of the schedulers serves; None where nothing depends on it.

        The end of a capture needs no new one: all sources are read again right before the call that follows. Nor does
        an incident whose call is under way.
        """
        now, serves = self._world.clock.now(), [self._busy_interval] if pending else []
        for incident in self._store.open_incidents():
            if self._remediator.awaits_scheduler(incident):
                serves.append(0.0 if self._is_answered_since(incident) else self._busy_interval)
            elif now - (incident.committed or 0.0) < _FRESH_SECONDS:
                serves.append(self._interval)
        return min(serves, default=None)

    def _is_answered_since(self, incident: Incident) -> bool:
        """Return whether the reading that serves was begun before the last answer: it is too old for the incident."""
        old = self._old_readings.get(incident.id)
        if old is not None and old == self._snapshot.reading(incident.scheduler):
            return True
        self._old_readings.pop(incident.id, None)
        return False

    def _may_end_attempts(self) -> bool:
        """Return whether attempts may have to be ended: not where another job goes on with the run."""
        begins = (State.PROPOSED, State.CAPTURING, State.PREPARING)
        found = (each for each in self._store.open_incidents() if each.state in begins)
        return any(not self._remediator.is_calling(each) for each in found)

    def _prune(self) -> None:
        now = self._world.clock.monotonic()
        if self._pruned is None or now - self._pruned >= _PRUNE_SECONDS:
            self._store.prune()
            self._pruned = now

    def _examine(self, firing: Mapping[str, Alert]) -> bool:
        waiting, awaiting = False, self._store.pending()
        self._metrics.keep_excuses({each.alert.key for each in awaiting})
        # The root of each attempt decides, and the others join its incident.
        for pending in sorted(awaiting, key=lambda each: (order(each.alert), each.received)):
            if self._stopping:
                break
            waiting = not self._examine_one(pending, firing) or waiting
        return waiting

    def _examine_one(self, pending: Pending, firing: Mapping[str, Alert]) -> bool:
        try:
            return self._examiner.examine(pending, firing)
        except Exception as error:  # noqa: BLE001  # one alert that cannot be examined must not block the others
            alert = pending.alert
            self._problem(f"alert {alert.label('alertname')} of run {alert.run_id}", error)
            return False

    def _advance_all(self, *, begin: bool) -> bool:
        """Advance the open incidents; none that is only proposed unless restarts may `begin`."""
        under_way = False
        for incident in self._store.open_incidents():
            if self._is_answered_since(incident):
                under_way = under_way or incident.state in _UNDER_WAY
            elif begin or incident.state is not State.PROPOSED:
                under_way = self._advance(incident) or under_way
        return under_way

    def _advance(self, incident: Incident) -> bool:
        try:
            for _ in range(_MAX_STEPS):
                if self._stopping or not self._remediator.advance(incident):
                    break
                incident = self._store.incident(incident.id)
        except Exception as error:  # noqa: BLE001  # one incident that cannot be advanced must not block the others
            self._problem(f"incident {incident.id}", error)
        return incident.state in _UNDER_WAY
