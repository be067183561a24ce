"""Explains what the remediator knows, decided and will do about a run, an alert or an incident, from its database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainwarden.record.clock import to_iso
from trainwarden_remediator.facts import facts_as_json
from trainwarden_remediator.incident import OPEN_STATES, Event, Incident, State, as_json, as_text, clean
from trainwarden_remediator.incident_rows import read_log, select_incidents
from trainwarden_remediator.message import budget_left, lost_work
from trainwarden_remediator.outbox import evidence_of, suspects_of
from trainwarden_remediator.price import CONTRADICTED
from trainwarden_remediator.roots import alert_as_text, alerts_as_json
from trainwarden_remediator.schema import alerts, incidents, switches

_MAX_INCIDENTS = 5
_MIN_PREFIX = 6

_NEXT = {
    State.PROPOSED: "The restart begins once its delay is over, if all sources, read again, still agree.",
    State.PREPARING: "The scheduler is to end the attempt; its answer is read before anything else is done.",
    State.IN_DOUBT: "The scheduler is read until it is clear whether the call took effect; nothing is repeated before.",
    State.PREPARED: "The attempt has ended and the next start is held; it is about to be given.",
    State.COMMITTED: "The next start is being given.",
    State.VERIFYING: "It is done when a newer attempt has passed the highest step of before; else it has failed.",
    State.DONE: "Nothing: the run has recovered.",
    State.FAILED: "Nothing for this attempt: the newer one has an alert, and an incident, of its own.",
    State.ADOPTED: "Nothing: something else has restarted or ended the job.",
    State.ESCALATED: "Nothing before a person has acted.",
    State.SUPPRESSED: "Nothing for this attempt, unless its alert ends and fires again.",
}
_STOP = "trainwarden-remediator freeze --run-id RUN, or silence its alert, until the attempt is ended."
_MAY = {
    State.PROPOSED: _STOP,
    State.PREPARING: _STOP,
    State.IN_DOUBT: "Look at the job in the scheduler; a job that is left held is released by scontrol release.",
    State.PREPARED: "scancel the job, if it must not start; scontrol release, if the remediator is down.",
    State.COMMITTED: "scancel the job, if it must not start.",
    State.VERIFYING: "scancel the job, if it must not go on.",
    State.FAILED: "Look at the newer attempt.",
    State.ESCALATED: "Act on the reason, then trainwarden-remediator ack INCIDENT, which ends the page.",
    State.SUPPRESSED: "Restart it yourself, or select a policy that does; the remediator does not.",
}


@dataclass(frozen=True)
class Waiting:
    """An alert as it is on record."""

    name: str
    run_id: str
    pending: bool
    waits_for: str | None
    received: float
    incident_id: str | None


@dataclass(frozen=True)
class Account:
    """What is on record. `about` is a run, an alert or an incident; `frozen` are the switches that hold."""

    about: str
    alerts: Sequence[Waiting]
    incidents: Sequence[tuple[Incident, list[Event]]]
    evidence: dict[str, tuple[str, ...]]
    suspects: dict[str, tuple[str, ...]]
    facts: dict[str, list[dict[str, Any]]]
    joined: dict[str, list[dict[str, Any]]]
    switches: Sequence[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on record."""
        return not self.alerts and not self.incidents


def account_of(connection: sa.Connection, about: str) -> Account:
    """Return what is on record about the run, the alert or the incident of this name; an id may be cut to 6 letters."""
    found = read_log(connection, about, _MAX_INCIDENTS)
    if not found:
        found = [(each, _events(connection, each)) for each in _named(connection, about)]
    waiting = _alerts(connection, about, [incident.id for incident, _ in found])
    if not found:
        ids = [each.incident_id for each in waiting if each.incident_id][-_MAX_INCIDENTS:]
        chosen = select_incidents(connection, incidents.c.id.in_(ids))
        found = [(each, _events(connection, each)) for each in chosen]
    return Account(
        about,
        waiting,
        found,
        {incident.id: evidence_of(connection, incident.id) for incident, _ in found},
        {incident.id: suspects_of(connection, incident.id) for incident, _ in found},
        {incident.id: facts_as_json(connection, incident.id) for incident, _ in found},
        {incident.id: alerts_as_json(connection, incident.id) for incident, _ in found},
        _switches(connection, {incident.run_id for incident, _ in found} | {each.run_id for each in waiting}),
    )


def _named(connection: sa.Connection, about: str) -> list[Incident]:
    if len(about) < _MIN_PREFIX:
        return []
    named = incidents.c.id.startswith(about, autoescape=True)
    return select_incidents(connection, named)[-_MAX_INCIDENTS:]


def _events(connection: sa.Connection, incident: Incident) -> list[Event]:
    log = read_log(connection, incident.run_id)
    return next((events for each, events in log if each.id == incident.id), [])


def _alerts(connection: sa.Connection, about: str, ids: Sequence[str]) -> list[Waiting]:
    """Return the alerts of a run, of a name, or of these incidents, oldest first."""
    found = []
    for row in connection.execute(sa.select(alerts).order_by(alerts.c.received)):
        labels = json.loads(row.labels)
        name, run_id = str(labels.get("alertname", "")), str(labels.get("run_id", ""))
        if about in (name, run_id, row.key) or (row.incident_id in ids and row.incident_id):
            found.append(Waiting(name, run_id, row.pending, row.waits_for, row.received, row.incident_id))
    return found


def _switches(connection: sa.Connection, runs: set[str]) -> list[str]:
    rows = connection.execute(sa.select(switches).order_by(switches.c.name, switches.c.scope))
    return [
        f"{row.name} of {row.scope or 'everything'} by {row.by} since {to_iso(row.at)}"
        f"{f' until {to_iso(row.until)}' if row.until else ''}: {row.reason}"
        for row in rows
        if not row.scope or row.scope in runs
    ]


def next_of(incident: Incident) -> str:
    """Return what the remediator does next."""
    text = _NEXT[incident.state]
    if incident.state is State.PROPOSED and incident.not_before:
        text += f" Not before {to_iso(incident.not_before)}."
    return f"{text} The run pages until it is acknowledged." if incident.paging else text


def may_of(incident: Incident) -> str:
    """Return what a person may do."""
    text = _MAY.get(incident.state, "Nothing is needed.")
    if incident.state is State.ESCALATED and incident.approval == CONTRADICTED:
        text = "trainwarden-remediator approve INCIDENT, which lets it be restarted; or act, and ack INCIDENT."
    return text.replace("INCIDENT", incident.id).replace("RUN", incident.run_id)


def decided_by(connection: sa.Connection, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what each of these incidents was decided by, as the API shows it: its alerts and facts."""
    return {
        each: {"alerts": alerts_as_json(connection, each), "facts": facts_as_json(connection, each)} for each in ids
    }


def account_as_json(account: Account) -> dict[str, Any]:
    """Return the account for a program."""
    return {
        "about": account.about,
        "switches": list(account.switches),
        "alerts": [vars(each) for each in account.alerts],
        "incidents": [
            {
                **as_json(incident, events),
                "evidence": list(account.evidence[incident.id]),
                "facts": account.facts[incident.id],
                "alerts": account.joined[incident.id],
                "suspects": list(account.suspects[incident.id]),
                "next": next_of(incident),
                "you_may": may_of(incident),
            }
            for incident, events in account.incidents
        ],
    }


def account_as_text(account: Account) -> str:
    """Return the account for a person: the newest incident last."""
    lines = [f"switched: {each}" for each in account.switches]
    for alert in account.alerts:
        state = f"waits: {alert.waits_for or 'to be examined'}" if alert.pending else "decided"
        lines.append(f"{to_iso(alert.received)} alert {alert.name} of run {alert.run_id}: {state}")
    text = "".join(f"{clean(line, 1200)}\n" for line in lines)
    for incident, events in account.incidents:
        shown = as_json(incident, [])
        more = (
            ("incident", incident.id),
            ("state", incident.state.value + ("" if incident.state in OPEN_STATES else ", over")),
            ("alerts", "; ".join(map(alert_as_text, account.joined[incident.id]))),
            ("facts", "; ".join(account.evidence[incident.id])),
            ("suspects", "; ".join(account.suspects[incident.id])),
            ("a restart loses", lost_work(shown)),
            ("budget", budget_left(shown)),
            ("next", next_of(incident)),
            ("you may", may_of(incident)),
        )
        text += as_text([(incident, events)])
        text += "".join(f"  {name}: {clean(value, 1200)}\n" for name, value in more if value)
    return text
