"""The durable state: pending alerts, incidents, events. Each method is one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from trainwarden_remediator.database.database import set_about
from trainwarden_remediator.database.schema import about, alerts, deliveries, events, incident_alerts, incidents
from trainwarden_remediator.decide.facts import NODES, Fact, facts_as_json, insert_facts
from trainwarden_remediator.incidents.alert_rows import (
    Pending,
    answer_alert,
    change_alert,
    keep_alerts,
    keep_delivery,
    select_pending,
)
from trainwarden_remediator.incidents.history import PastRestart
from trainwarden_remediator.incidents.incident import Action, Alert, Event, Incident, State, clean
from trainwarden_remediator.incidents.incident_rows import (
    IN_CLUSTER,
    OF_RUN,
    OPEN,
    RESTARTS,
    append_event,
    find_incident,
    insert_incident,
    last_detail,
    log_change,
    read_log,
    same_decision,
    select_acknowledged,
    select_incidents,
    select_past_restarts,
    selection,
    stages,
    update_incident,
)
from trainwarden_remediator.incidents.roots import is_awaited, join
from trainwarden_remediator.incidents.webhook import Delivery
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.adoptions import Adoptions
from trainwarden_remediator.store.answers import Answers
from trainwarden_remediator.store.calls import StoredCalls
from trainwarden_remediator.store.exclusions import StoredExclusions
from trainwarden_remediator.store.explain import decided_by
from trainwarden_remediator.store.intake import Intake
from trainwarden_remediator.store.switches import Switches
from trainwarden_remediator.store.transactions import Transactions

_REFUSAL_SECONDS = 24 * 3600.0
_RETENTION_SECONDS = 30 * 24 * 3600.0
_DATABASE = sa.select(about.c.value).where(about.c.key == "database")
_PRUNE = (
    deliveries.delete().where(deliveries.c.last_received < sa.bindparam("before")),
    alerts.delete().where(alerts.c.last_seen < sa.bindparam("before"), ~alerts.c.pending),
)
_OF_JOB = selection(incidents.c.scheduler == sa.bindparam("scheduler"), incidents.c.job_id == sa.bindparam("job_id"))
_OPEN, _PAGING, _OF_RUN = selection(incidents.c.state.in_(OPEN)), selection(incidents.c.paging), selection(OF_RUN)
_RESTARTED = sa.func.coalesce(incidents.c.committed, incidents.c.updated)
_RESTARTS_SINCE = sa.select(_RESTARTED).where(
    RESTARTS,
    sa.bindparam("moment") < _RESTARTED,
    IN_CLUSTER,
    incidents.c.run_id != sa.bindparam("leave_out"),
    incidents.c.id != sa.bindparam("but"),
)
_PROPOSALS = selection(
    incidents.c.action == Action.RESTART.value,
    sa.or_(
        sa.and_(incidents.c.state.in_(OPEN), incidents.c.committed.is_(None)),  # however old the alert is by now
        sa.func.coalesce(incidents.c.committed, incidents.c.created) > sa.bindparam("moment"),
    ),
)


class NoteMessage(Protocol):
    """Note a message to people about an incident."""

    def __call__(self, connection: sa.Connection, incident: Incident, detail: str, kind: str | None = None) -> None:
        """Note a message in the transaction; `kind` where the incident's state does not say it."""


def _note_no_message(connection: sa.Connection, incident: Incident, detail: str, kind: str | None = None) -> None:
    """Note nothing."""


class Store:
    """Alerts and incidents, and by name what else is stored; `crashpoint` is as `Transactions` has it.

    Attributes:
        transactions: those on the database.
        adoptions: how often runs were restarted, and what of that is missing on record.
        answers: of people to restarts that waited for them.
        calls: to schedulers.
        exclusions: the nodes that jobs avoid.
        switches: what people and storms have switched.
        note_message: called with each new state of an incident and its reason, in the transaction that stores it.
        database: id of the database, which a copy of it keeps.
    """

    def __init__(self, engine: sa.Engine, clock: Clock, crashpoint: Callable[[str], None] = lambda _name: None) -> None:
        self._clock = clock
        self.transactions = Transactions(engine, clock, crashpoint)
        self.adoptions = Adoptions(self.transactions)
        self.answers = Answers(self.transactions)
        self.calls = StoredCalls(self.transactions, clock)
        self.exclusions = StoredExclusions(self.transactions)
        self.switches = Switches(engine, clock)
        self.note_message: NoteMessage = _note_no_message
        self._intake = Intake(self._receive)
        with engine.begin() as connection:
            # A copy that is put back keeps it.
            self.database = connection.execute(_DATABASE).scalar_one_or_none() or uuid.uuid4().hex
            set_about(connection, "database", self.database)

    def receive(self, delivery: Delivery) -> None:
        """Store the alerts of a webhook; durable when it returns. For any thread: what comes together is one commit."""
        self._intake.take(delivery)

    def _receive(self, received: Sequence[Delivery]) -> None:
        now = self._clock.now()
        with self.transactions.writing("receive") as connection:
            for delivery in received:
                keep_delivery(connection, delivery, now)
                keep_alerts(connection, delivery.firing, "webhook", now)

    def observe(self, firing: Sequence[Alert]) -> None:
        """Store the alerts of a poll."""
        if firing:
            with self.transactions.writing("observe") as connection:
                keep_alerts(connection, firing, "poll", self._clock.now())

    def prune(self) -> None:
        """Delete deliveries and decided alerts that were last seen 30 days ago. Incidents stay."""
        before = self._clock.now() - _RETENTION_SECONDS
        with self.transactions.writing("prune") as connection:
            for statement in _PRUNE:
                connection.execute(statement, {"before": before})

    def pending(self) -> list[Pending]:
        """Return the alerts that await a decision, oldest first."""
        with self.transactions.reading() as connection:
            return select_pending(connection)

    def wait(self, alert: Alert, reason: str) -> None:
        """Record what an alert waits for."""
        with self.transactions.writing("wait") as connection:
            change_alert(connection, alert.key, waits_for=clean(reason))

    def propose(
        self,
        pending: Pending,
        incident: Incident,
        known: Sequence[Fact] = (),
        *,
        dropped: bool = False,
        answered: bool = True,
        kind: str | None = None,
    ) -> Incident | None:
        """Store the incident decided for an alert; None if the same decision is on record, which settles the alert too.

        `known` are the facts of the decision, stored with it; `kind` is as `NoteMessage` has it.
        A `dropped` alert becomes pending again when it fires again; one that is not `answered` stays pending.
        """
        received = Event(pending.received, "RECEIVED", f"{incident.alert} by {pending.source}")
        decided = Event(incident.updated, incident.state.value, f"{incident.action.value}: {incident.reason}")
        try:
            with self.transactions.writing("propose") as connection:
                earlier = same_decision(connection, incident)
                if earlier is None:
                    insert_incident(connection, incident)
                    insert_facts(connection, incident.id, incident.updated, known)
                    join(connection, incident.id, pending.alert, incident.updated, root=True)
                    append_event(connection, incident.id, received)
                    append_event(connection, incident.id, decided)
                if answered:
                    answer_alert(connection, pending.alert, earlier or incident.id, dropped=dropped)
                if earlier is None:
                    self.note_message(connection, incident, incident.reason, kind)
        except IntegrityError:
            # The unique index refused a second restart of the attempt.
            with self.transactions.writing("answer") as connection:
                answer_alert(connection, pending.alert, None, dropped=False)
            return None
        if earlier is not None:
            return None
        log_change(incident, decided.detail)
        return incident

    def move(
        self, incident: Incident, state: State, detail: str, *, kind: str | None = None, **changes: Any
    ) -> Incident:
        """Change an incident's state and log the reason; raise StaleIncident if it has changed since it was read.

        `kind` is as `NoteMessage` has it.
        """
        with self.transactions.writing(f"{incident.state.value} to {state.value}") as connection:
            moved, is_news = self._move(connection, incident, state, detail, kind, **changes)
        if is_news:
            log_change(moved, detail)
        return moved

    def join(self, pending: Pending, incident: Incident, *, answered: bool = True) -> None:
        """Let an alert belong to an incident of its attempt, which answers it; one not `answered` stays pending."""
        name = pending.alert.label("alertname")
        with self.transactions.writing("join") as connection:
            if join(connection, incident.id, pending.alert, self._clock.now(), root=False):
                detail = f"{name} by {pending.source} joins: {pending.alert.mode}"
                append_event(connection, incident.id, Event(self._clock.now(), incident.state.value, detail))
            if answered:
                answer_alert(connection, pending.alert, incident.id, dropped=False)

    def is_awaited(self, incident_id: str) -> bool:
        """Return whether an alert of an incident still awaits its decision."""
        with self.transactions.reading() as connection:
            return is_awaited(connection, incident_id)

    def withdraw(self, incident: Incident, reason: str, *, dropped: bool) -> Incident:
        """Turn a decision to restart into one to do nothing, which allows another decision. See `propose`, `move`."""
        with self.transactions.writing(f"{incident.state.value} to withdrawn") as connection:
            changes: dict[str, Any] = {"action": Action.NONE, "reason": clean(reason, 1000), "paging": False}
            moved, _ = self._move(connection, incident, State.SUPPRESSED, reason, **changes)
            # Only the alert that it was decided by is refuted; those that joined may need a decision of their own.
            joined = sa.select(incident_alerts.c.alert_key).where(~incident_alerts.c.root)
            of_incident = alerts.c.incident_id == incident.id
            again = (
                of_incident
                if dropped
                else sa.and_(of_incident, alerts.c.key.in_(joined.filter_by(incident_id=incident.id)))
            )
            connection.execute(alerts.update().where(again).values(dropped=True))
        log_change(moved, f"withdrawn: {reason}")
        return moved

    def _move(
        self,
        connection: sa.Connection,
        incident: Incident,
        state: State,
        detail: str,
        kind: str | None = None,
        **changes: Any,
    ) -> tuple[Incident, bool]:
        """Return the changed incident, and whether that is news."""
        now, detail = self._clock.now(), clean(detail, 1000)
        moved = replace(incident, state=state, updated=now, **changes)
        if not update_incident(connection, incident.state, moved):
            raise StaleIncident(incident.id)
        if replace(moved, updated=incident.updated) == incident and last_detail(connection, incident.id) == detail:
            return moved, False  # logged already: a call that is repeated for hours must not fill the log
        append_event(connection, incident.id, Event(now, state.value, detail))
        self.note_message(connection, moved, detail, kind)
        return moved, True

    def of_job(self, scheduler: str, job_id: str) -> list[Incident]:
        """Return every incident about a job, oldest first."""
        return self._incidents(_OF_JOB, scheduler=scheduler, job_id=job_id)

    def add(self, incident: Incident) -> None:
        """Store an incident that no alert has led to."""
        with self.transactions.writing("add") as connection:
            self.insert(connection, incident)

    def insert(self, connection: sa.Connection, incident: Incident) -> None:
        """Store an incident that no alert has led to, in a transaction of the caller."""
        detail = f"{incident.action.value}: {incident.reason}"
        insert_incident(connection, incident)
        append_event(connection, incident.id, Event(incident.updated, incident.state.value, detail))
        self.note_message(connection, incident, incident.reason)
        log_change(incident, detail)

    def open_incidents(self) -> list[Incident]:
        """Return the open incidents, oldest first."""
        return self._incidents(_OPEN)

    def open_since(self) -> dict[str, float]:
        """Return since when each open incident is proposed, or its work goes on."""
        with self.transactions.reading() as connection:
            decided, begun = stages(connection)
        return {**decided, **begun}

    def decided(self) -> dict[str, float]:
        """Return when each open incident was proposed, which may be long after its alert was received."""
        with self.transactions.reading() as connection:
            return stages(connection)[0]

    def incident(self, incident_id: str) -> Incident:
        """Return one incident as it is now; raise KeyError."""
        with self.transactions.reading() as connection:
            found = find_incident(connection, incident_id)
        if found is None:
            raise KeyError(incident_id)
        return found

    def escalations(self) -> list[Incident]:
        """Return the incidents that page: until they are acknowledged, or the run is seen to need no person."""
        return self._incidents(_PAGING)

    def acknowledged(self, ids: Collection[str]) -> set[str]:
        """Return which of these incidents a person has acknowledged."""
        with self.transactions.reading() as connection:
            return select_acknowledged(connection, ids)

    def recovery_seconds(self, leave_out: str | None = None) -> list[float]:
        """Return how long each restart that helped took, from its alert on, of all runs but `leave_out`."""
        query = sa.select(incidents.c.updated - incidents.c.created).where(
            incidents.c.state == State.DONE.value, incidents.c.run_id != (leave_out or "")
        )
        with self.transactions.reading() as connection:
            return [max(0.0, row[0]) for row in connection.execute(query)]

    def budgets_left(self) -> dict[tuple[str, str], int]:
        """Return the restarts left by the decisions of the last day, by run and failure mode."""
        since = self._clock.now() - _REFUSAL_SECONDS
        recent = self._incidents(selection(incidents.c.updated >= since, incidents.c.budget_limit.is_not(None)))
        return {(each.run_id, each.failure_mode): left for each in recent if (left := each.restarts_left) is not None}

    def refusals(self) -> list[Incident]:
        """Return the failures of the last day that a policy has a budget for and does not restart, newest of each run.

        A decision to restart that was withdrawn is none: the run has recovered, or was replaced.
        """
        since = self._clock.now() - _REFUSAL_SECONDS
        recent = incidents.c.updated >= since
        of_runs = sa.select(sa.func.max(incidents.c.number)).where(recent)
        newest = of_runs.group_by(incidents.c.cluster, incidents.c.run_id)
        restarts = sa.select(events.c.incident_id).where(events.c.state == State.PROPOSED.value)
        refused = selection(
            incidents.c.state == State.SUPPRESSED.value,
            incidents.c.budget_limit.is_not(None),
            recent,
            incidents.c.number.in_(newest),
            incidents.c.id.not_in(restarts),
        )
        return self._incidents(refused)

    def of_run(self, run_id: str, cluster: str = "") -> list[Incident]:
        """Return every incident of a run, oldest first. An empty cluster is any, here and in what follows."""
        return self._incidents(_OF_RUN, run_id=run_id, cluster=cluster)

    def _incidents(self, selected: sa.Select[Any], **values: object) -> list[Incident]:
        with self.transactions.reading() as connection:
            return select_incidents(connection, selected, **values)

    def count_by_state(self) -> dict[str, int]:
        """Return the number of incidents in each state."""
        query = sa.select(incidents.c.state, sa.func.count()).group_by(incidents.c.state)
        with self.transactions.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def decided_for(self, alert_key: str) -> Incident | None:
        """Return the incident that has answered an alert; None where it is pending, or there is none."""
        answered = sa.select(alerts.c.incident_id).where(
            alerts.c.key == alert_key, ~alerts.c.pending, ~alerts.c.dropped
        )
        return next(iter(self._incidents(selection(incidents.c.id.in_(answered)))), None)

    def past_restarts(self, run_id: str, cluster: str = "", but: str | None = None) -> list[PastRestart]:
        """Return the restarts of a run, made or decided, oldest first, without the incident `but`."""
        with self.transactions.reading() as connection:
            return select_past_restarts(connection, run_id, cluster, but)

    def restarts_since(
        self, moment: float, cluster: str = "", leave_out: str | None = None, but: str | None = None
    ) -> tuple[float, ...]:
        """Return when restarts of any run but `leave_out` were given or decided since a moment, without `but`."""
        values = {"moment": moment, "cluster": cluster, "leave_out": leave_out or "", "but": but or ""}
        with self.transactions.reading() as connection:
            return tuple(connection.execute(_RESTARTS_SINCE, values).scalars())

    def proposals_since(self, moment: float) -> list[Incident]:
        """Return the restarts whose start is not given yet, and those that were decided or given since a moment."""
        return self._incidents(_PROPOSALS, moment=moment)

    def suspects_of(self, incident_id: str) -> set[str]:
        """Return the nodes of which a defect was known at the decision about an incident."""
        with self.transactions.reading() as connection:
            known = facts_as_json(connection, incident_id)
        return {fact["subject"].removeprefix("node ") for fact in known if fact["source"] == NODES}

    def known_of(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return what each of these incidents was decided by, for a program: its alerts and facts."""
        with self.transactions.reading() as connection:
            return decided_by(connection, ids)

    def with_events(self, run_id: str | None = None, limit: int = 1000) -> list[tuple[Incident, list[Event]]]:
        """Return the newest `limit` incidents, of one run or of all, oldest first, with their events."""
        with self.transactions.reading() as connection:
            return read_log(connection, run_id, limit)


class StaleIncident(Exception):
    """The row was changed since it was read."""
