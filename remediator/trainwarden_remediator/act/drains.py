"""Nodes that are drained in SLURM on evidence of broken hardware: by a reason of our own, and never against a person's.

The reason on the node is the record of the drain, with incident and end: it outlives the database, and whoever replaces
it has taken the node over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from trainwarden.clients.slurm.client import ControlResult, SlurmClient, SlurmError, UnreadableRecord
from trainwarden.clients.slurm.nodes import SlurmNode
from trainwarden.identity import InvalidAttemptKey
from trainwarden.record.clock import from_iso, to_iso
from trainwarden_remediator.drivers.driver import CallOutcome
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.calls import Call
from trainwarden_remediator.store.exclusions import Exclusion
from trainwarden_remediator.store.store import Store

log = logging.getLogger(__name__)

MARK = "trainwarden:"
_OURS = re.compile(rf"{MARK} incident (\S+), until (\S+)")
_FOR_GOOD = "resumed"
_INTERVAL_SECONDS = 60.0
# A node in any other state is out of use already, or about to be.
_IN_USE = frozenset(("idle", "mixed", "allocated", "completing", "planned", "reserved"))
_DRAINED = frozenset(("drained", "draining"))


def reason_of(incident_id: str, until: float | None) -> str:
    """Return the reason of a drain; `until` is Unix time, None where it ends by the command `undrain` alone."""
    return f"{MARK} incident {incident_id}, until {_FOR_GOOD if until is None else to_iso(until)[:19] + 'Z'}"


def is_ours(reason: str) -> bool:
    """Return whether a reason is one of ours, as it was: with a word more it is a person's."""
    return _OURS.fullmatch(reason) is not None


def is_over(reason: str, now: float) -> bool:
    """Return whether a drain by this reason has ended; never for another reason than ours."""
    found = _OURS.fullmatch(reason)
    until = from_iso(found[2]) if found is not None else None
    return until is not None and until <= now


@dataclass(frozen=True)
class Change:
    """What a node is to become: `resume` or `drain` it, with the reason."""

    node: str
    resume: bool
    reason: str


def changes(nodes: Collection[SlurmNode], wanted: dict[str, Exclusion], now: float, at_most: int) -> list[Change]:
    """Return what is to be changed, drains that are over first.

    Args:
        nodes: of the cluster.
        wanted: nodes with broken hardware, each with the incident and the end.
        now: Unix seconds.
        at_most: so many nodes may be drained by us at a time.
    """
    ours = [node for node in nodes if is_ours(node.reason)]
    over = [node for node in ours if node.state in _DRAINED and is_over(node.reason, now)]
    found = [Change(node.name, resume=True, reason=node.reason) for node in over]
    room = at_most - (len(ours) - len(over))
    for node in sorted(nodes, key=lambda each: each.name):
        evidence = wanted.get(node.name)
        if evidence is None or node.state not in _IN_USE or node.reason or room <= 0:
            continue
        if evidence.until is None or evidence.until > now:
            found.append(Change(node.name, resume=False, reason=reason_of(evidence.incident_id, evidence.until)))
            room -= 1
    return found


class Drains:
    """Drains and resumes nodes; drains none where `at_most` is 0, which is the default of the service.

    `scheduler` is the name of the driver under which it is stored which nodes jobs avoid.
    """

    def __init__(
        self, client: SlurmClient, store: Store, clock: Clock, at_most: int, *, scheduler: str = "slurm"
    ) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._at_most = at_most
        self._scheduler = scheduler
        self._looked: float | None = None

    def reconcile(self) -> list[Change]:
        """Do what is to be done, once a minute; return what was done."""
        now = self._clock.monotonic()
        if not self._at_most or (self._looked is not None and now - self._looked < _INTERVAL_SECONDS):
            return []
        self._looked = now
        nodes = read_nodes(self._client)
        if isinstance(nodes, Unknown):
            log.warning("no node is drained or resumed: %s", nodes.reason)
            return []
        wanted = {
            node: each
            for of_job in self._store.exclusions.of_scheduler(self._scheduler).values()
            for node, each in of_job.items()
            if not self._has_drained(node, each.incident_id)
        }
        done = []
        for change in changes(nodes, wanted, self._clock.now(), self._at_most):
            if self._make(change):
                done.append(change)
            elif change.resume:
                break  # it has made no room for another
        return done

    def _has_drained(self, node: str, incident_id: str) -> bool:
        """Return whether a node was drained since the evidence of an incident; if it is not, a person resumed it."""
        try:
            incident = self._store.incident(incident_id)
        except KeyError:
            return False
        evidence, accepted = incident.excluded.get(node, 0.0), CallOutcome.ACCEPTED.value
        made = self._store.calls.of_job(self._scheduler, incident.job_id or "")
        return any(
            (each.verb, each.outcome) == (f"drain {node}", accepted) and each.started >= evidence for each in made
        )

    def _make(self, change: Change) -> bool:
        """Make a change, on record before; the incident of a drain may be of another database."""
        found = _OURS.fullmatch(change.reason)
        verb = f"{'resume' if change.resume else 'drain'} {change.node}"
        number = None
        with suppress(KeyError, InvalidAttemptKey):  # of another database, or one that names no start
            incident = self._store.incident(found[1] if found else "")
            call = Call(
                incident.id, self._scheduler, incident.job_id or "", incident.generation, verb, self._clock.now()
            )
            number = self._store.calls.begin(call)
        result = make(self._client, change)
        outcome = CallOutcome.REFUSED if result.refused else CallOutcome.UNCLEAR
        if number is not None:
            self._store.calls.end(number, (CallOutcome.ACCEPTED if result.accepted else outcome).value)
        return result.accepted


def make(client: SlurmClient, change: Change) -> ControlResult:
    """Make a change, if the node still is as it was judged: a person may have taken it over meanwhile."""
    nodes = read_nodes(client)
    node = next((each for each in nodes if each.name == change.node), None) if not isinstance(nodes, Unknown) else None
    expected = change.reason if change.resume else ""
    if node is None or node.reason != expected:
        said = "it cannot be read" if node is None else f"its reason is {node.reason!r}"
        return ControlResult(accepted=False, refused=True, detail=f"node {change.node} is left as it is: {said}")
    fields = {"State": "RESUME"} if change.resume else {"State": "DRAIN", "Reason": change.reason}
    result = client.update_node(change.node, **fields)
    verb = "resume" if change.resume else "drain"
    log.log(
        logging.INFO if result.accepted else logging.WARNING,
        "%s node %s (%s): %s", verb, change.node, change.reason, clean(result.detail, 400),
    )  # fmt: skip
    return result


def undrain(client: SlurmClient, names: Collection[str]) -> list[str]:
    """Resume nodes whose reason is ours; return a line for each that was not."""
    nodes = read_nodes(client)
    if isinstance(nodes, Unknown):
        return [nodes.reason]
    by_name, problems = {node.name: node for node in nodes}, []
    for name in names:
        node = by_name.get(name)
        if node is None:
            problems.append(f"{name}: no such node")
        elif not is_ours(node.reason):
            problems.append(f"{name}: not drained by Trainwarden: {node.reason or node.state}")
        elif not (result := make(client, Change(name, resume=True, reason=node.reason))).accepted:
            problems.append(f"{name}: {clean(result.detail, 400)}")
    return problems


def read_nodes(client: SlurmClient) -> list[SlurmNode] | Unknown:
    """Return all nodes of the cluster."""
    try:
        return [node for node in client.nodes() if not isinstance(node, UnreadableRecord)]
    except SlurmError as error:
        return Unknown(clean(error.message))
