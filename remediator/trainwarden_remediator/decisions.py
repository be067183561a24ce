"""The decision log as text for people."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden.record.clock import to_iso
from trainwarden_remediator.incident import Event, Incident, clean


def as_text(log: Iterable[tuple[Incident, list[Event]]]) -> str:
    """One paragraph per incident: what was decided and why, then what happened to it, line by line."""
    return "\n".join(_paragraph(incident, events) for incident, events in log)


def _paragraph(incident: Incident, events: list[Event]) -> str:
    attempt = "?" if incident.attempt is None else incident.attempt
    budget = (
        "" if incident.budget_limit is None else f", {incident.budget_used} of {incident.budget_limit} restarts used"
    )
    head = f"{to_iso(incident.created)} {incident.run_id} attempt {attempt}: {incident.alert}"
    decided = f"  {incident.action.value} ({incident.policy}{budget}): {incident.reason}"
    lines = [f"  {to_iso(event.time)} {event.state:<10} {event.detail}" for event in events]
    return "".join(f"{clean(line, 1200)}\n" for line in (head, decided, *lines))
