"""The messages to people that are still to be sent: written with the decision that they are about, kept until sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.database import audit
from trainwarden_remediator.database.database import file_of, reading
from trainwarden_remediator.database.schema import alerts, incident_alerts, incidents, outbox
from trainwarden_remediator.decide.facts import DECISION as FACTS_OF_DECISION
from trainwarden_remediator.decide.facts import changed_facts, fact_as_text, facts_as_json
from trainwarden_remediator.incidents.incident import Action, Incident, State, as_json
from trainwarden_remediator.incidents.incident_rows import IN_STORM
from trainwarden_remediator.incidents.roots import alert_as_text, alerts_as_json
from trainwarden_remediator.observe.world import Clock

# What has not been delivered by then is no news any more, but for a page that stands.
EXPIRES_SECONDS = 24 * 3600.0
# The most that a message waits for its next try.
LONGEST_DELAY_SECONDS = 1200.0
_KEPT_SECONDS = 7 * 24 * 3600.0
_MAX_FACTS = 8
_SUSPECTS = ("rank", "node", "gpu")

DECISION, REFUSAL, OUTCOME, HAND_OVER = "decision", "refusal", "outcome", "hand-over"
_NEWS = frozenset((DECISION, REFUSAL, OUTCOME, HAND_OVER))
# Why a run is not restarted, or not yet, beside a policy's refusal: for its user alone, and no news to others.
NOT_RESTARTED = "not restarted"
# Which new job an attempt comes back as: for its user alone, too; others read it with the outcome.
RESUBMITTED = "resubmitted"
# That a run is going to be restarted is no news while a storm keeps that from being begun.
_IS_HELD = sa.and_(outbox.c.kind == DECISION, outbox.c.incident_id.in_(IN_STORM))
# That a run needs a person is no news once its page has ended; it is again where the incident pages anew.
_PAGES_NO_MORE = sa.and_(
    outbox.c.kind == HAND_OVER, outbox.c.incident_id.not_in(sa.select(incidents.c.id).where(incidents.c.paging))
)
_WAITS = sa.and_(outbox.c.state == "pending", ~_IS_HELD, ~_PAGES_NO_MORE)
_WITHDRAWN = (
    outbox.update()
    .where(outbox.c.incident_id == sa.bindparam("of"), outbox.c.kind == DECISION, outbox.c.state == "pending")
    .values(state="expired", error="the decision was withdrawn before it was sent")
)
_ENDS = (State.DONE, State.FAILED, State.ADOPTED)


@dataclass(frozen=True)
class Message:
    """One message, as it is to be sent.

    Attributes:
        number: in the outbox.
        channel: by which it goes.
        mark: equal for two copies of one message, and for no others.
        kind: decision, refusal, outcome or hand-over; or not restarted, or resubmitted.
        incident: as `as_json` has it, at that time, without its events; `detail` is what made it change,
            `audit` the newest row of the decision log then.
        suspects: ranks, nodes and GPUs that its alerts name.
        evidence: what was known at the decision, a line each.
        alerts: those of the incident, its root first.
        attempts: at sending it, that failed.
    """

    number: int
    channel: str
    mark: str
    kind: str
    incident: Mapping[str, Any]
    created: float
    attempts: int
    suspects: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waiting:
    """How many messages wait for a channel, and since when the oldest does, Unix seconds."""

    count: int
    since: float


class Outbox:
    """The table, for any thread.

    Args:
        engine: of the database.
        clock: for the times of messages.
        channels: the names of the ways by which each message goes.
        kinds: of the messages that go by a channel; without them all but NOT_RESTARTED and RESUBMITTED.
    """

    def __init__(
        self,
        engine: sa.Engine,
        clock: Clock,
        channels: Sequence[str],
        kinds: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._engine = engine
        self._reading = reading(engine)
        self._clock = clock
        self._kinds = dict(kinds or {})
        self.channels = tuple(channels)

    def note(self, connection: sa.Connection, incident: Incident, detail: str, kind: str | None = None) -> None:
        """Insert the messages of an incident that has just been changed, in the same transaction.

        `kind`: of the messages, where the state of the incident does not say it.
        """
        kind = kind or kind_of(incident)
        if kind is None or (incident.run_id == CANARY_JOB and kind != HAND_OVER):  # it breaks on schedule: no news
            return
        mark = f"{incident.id}-{incident.state.value.lower()}"
        if kind == RESUBMITTED:
            mark = f"{incident.id}-job-{incident.successor}"
        if kind == NOT_RESTARTED:  # several may follow each other while it waits
            mark += f"-{hashlib.sha256(detail.encode()).hexdigest()[:12]}"
        if kind == REFUSAL:
            connection.execute(_WITHDRAWN, {"of": incident.id})
        head = audit.head(connection)
        snapshot = json.dumps({**as_json(incident, []), "detail": detail, "audit": head and str(head)})
        for channel in self.channels:
            if kind not in self._kinds.get(channel, _NEWS):
                continue
            known = sa.select(outbox.c.number).where(outbox.c.mark == mark, outbox.c.channel == channel)
            if connection.execute(known).first() is None:
                values: dict[str, Any] = {"channel": channel, "mark": mark, "kind": kind, "incident_id": incident.id}
                values |= {"snapshot": snapshot, "created": self._clock.now(), "attempts": 0}
                connection.execute(outbox.insert().values(**values, not_before=0.0, state="pending"))

    def due(self, channel: str, limit: int = 10) -> list[Message]:
        """Return the messages to send now, oldest first; raise DatabaseUnusable where none could be noted as sent."""
        now, not_before = self._clock.now(), outbox.c.not_before
        # A time further away than any delay was noted before the clock was set back.
        is_due = sa.or_(not_before <= now, not_before > now + LONGEST_DELAY_SECONDS)
        query = (
            sa.select(outbox).where(outbox.c.channel == channel, _WAITS, is_due).order_by(outbox.c.number).limit(limit)
        )
        file_of(self._engine).check()
        with self._reading.begin() as connection:
            return [self._message(connection, row) for row in connection.execute(query).all()]

    def sent(self, message: Message) -> None:
        """Note that a message was delivered."""
        self._change(message, state="sent", sent=self._clock.now(), error=None)

    def failed(self, message: Message, error: str, delay: float) -> bool:
        """Note why a message was not delivered; try again after `delay` seconds. Return whether it is given up.

        That a person is needed is never given up while the incident pages.
        """
        now = self._clock.now()
        expired = now - message.created >= EXPIRES_SECONDS and not self._pages(message)
        state = "expired" if expired else "pending"
        self._change(message, state=state, error=error, attempts=message.attempts + 1, not_before=now + delay)
        return expired

    def waiting(self) -> dict[str, Waiting]:
        """Return what waits, by channel; 0 since 0 where nothing does."""
        query = (
            sa.select(outbox.c.channel, sa.func.count(), sa.func.min(outbox.c.created))
            .where(_WAITS)
            .group_by(outbox.c.channel)
        )
        found = dict.fromkeys(self.channels, Waiting(0, 0.0))
        with self._reading.begin() as connection:
            for channel, count, since in connection.execute(query):
                if channel in found:
                    found[channel] = Waiting(count, since)
        return found

    def prune(self) -> None:
        """Delete the messages that are over since a week; give up those of a day ago that nobody is to get any more."""
        now = self._clock.now()
        over = {
            "the channel is not configured any more": outbox.c.channel.not_in(self.channels),
            "its page has ended": _PAGES_NO_MORE,
        }
        of_yesterday = sa.and_(outbox.c.state == "pending", outbox.c.created <= now - EXPIRES_SECONDS)
        with self._engine.begin() as connection:
            for reason, which in over.items():
                values = {"state": "expired", "error": reason}
                connection.execute(outbox.update().where(of_yesterday, which).values(**values))
            of_last_week = sa.and_(outbox.c.state != "pending", outbox.c.created < now - _KEPT_SECONDS)
            connection.execute(outbox.delete().where(of_last_week))

    def _pages(self, message: Message) -> bool:
        if message.kind != HAND_OVER:
            return False
        query = sa.select(incidents.c.paging).where(incidents.c.id == message.incident["id"])
        with self._reading.begin() as connection:
            return bool(connection.execute(query).scalar_one_or_none())

    def _change(self, message: Message, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(outbox.update().where(outbox.c.number == message.number).values(**values))

    def _message(self, connection: sa.Connection, row: sa.Row[Any]) -> Message:
        return Message(
            row.number,
            row.channel,
            row.mark,
            row.kind,
            json.loads(row.snapshot),
            row.created,
            row.attempts,
            suspects_of(connection, row.incident_id),
            evidence_of(connection, row.incident_id),
            tuple(map(alert_as_text, alerts_as_json(connection, row.incident_id)[:_MAX_FACTS])),
        )


def kind_of(incident: Incident) -> str | None:
    """Return what kind of message an incident in this state is; None where there is nothing to be sent."""
    if incident.state is State.ESCALATED:
        # That a page has ended is no news: the message of then may be deleted by now.
        return HAND_OVER if incident.paging else None
    if incident.state is State.PROPOSED:
        return DECISION
    if incident.state in _ENDS and incident.action is Action.RESTART:
        return OUTCOME
    # A policy that could restart does not: a decision against it, beside the many alerts that need none.
    if incident.state is State.SUPPRESSED and incident.budget_limit is not None:
        return REFUSAL
    return None


def suspects_of(connection: sa.Connection, incident_id: str) -> tuple[str, ...]:
    """Return the ranks, nodes and GPUs that the alerts of an incident name."""
    joined = sa.select(incident_alerts.c.alert_key).where(incident_alerts.c.incident_id == incident_id)
    query = sa.select(alerts.c.labels).where(
        sa.or_(alerts.c.incident_id == incident_id, alerts.c.key.in_(joined.scalar_subquery()))
    )
    found: dict[str, None] = {}
    for (labels,) in connection.execute(query):
        named = json.loads(labels)
        parts = [f"{name} {named[name]}" for name in _SUSPECTS if named.get(name)]
        if parts:
            found[", ".join(parts)] = None
    return tuple(found)


def evidence_of(connection: sa.Connection, incident_id: str) -> tuple[str, ...]:
    """Return what was known at the last decision about an incident, and what had changed at the call for it."""
    known = facts_as_json(connection, incident_id)
    decided = [each for each in known if each["moment"] == FACTS_OF_DECISION]
    return tuple(map(fact_as_text, (*decided[-_MAX_FACTS:], *changed_facts(known)[-_MAX_FACTS:])))
