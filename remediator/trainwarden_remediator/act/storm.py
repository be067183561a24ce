"""Storms: many runs that fail together have one cause, which restarts do not remove. Nothing is restarted then."""

from __future__ import annotations

import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwarden_remediator.canary_job.canary_job import RUN_ID as CANARY_JOB
from trainwarden_remediator.drivers.driver import ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import STORM, Action, Alert, Incident, State
from trainwarden_remediator.observe.world import World
from trainwarden_remediator.store.store import Store

log = logging.getLogger(__name__)

# Labels of alerts that name what several runs may have in common, beside their nodes.
_CAUSES = {"rack": "rack", "switch": "switch", "filesystem": "file system", "fabric": "fabric"}
_MAX_NAMES = 20
_MAX_SHARED = 3
_Alerts = Mapping[tuple[str, str], Sequence[Alert]]  # by cluster and run


@dataclass(frozen=True)
class Candidate:
    """A restart that is to be made or was made lately.

    Attributes:
        run_id: of the run.
        traits: what failed, as pairs of kind and name: they are shown, and are no cause.
        causes: what the run uses that may be the cause, as pairs of kind and name.
    """

    run_id: str
    traits: frozenset[tuple[str, str]] = frozenset()
    causes: frozenset[tuple[str, str]] = frozenset()


def judge(candidates: Sequence[Candidate], limit: int) -> str | None:
    """Return why these restarts are a storm, with what they share; None if they are none.

    They are one if there are more than `limit` runs, or several runs share a node, rack, switch, file system or fabric.
    """
    runs = sorted({each.run_id for each in candidates})
    causes = _shared(candidates, [each.causes for each in candidates])
    if len(runs) <= limit and not causes:
        return None
    traits = _shared(candidates, [each.traits for each in candidates])
    shared = [f"{kind} {name} ({count} runs)" for (kind, name), count in (*causes, *traits)[:_MAX_SHARED]]
    names = ", ".join(runs[:_MAX_NAMES]) + (f" and {len(runs) - _MAX_NAMES} more" if len(runs) > _MAX_NAMES else "")
    return (
        f"{len(runs)} runs are to be restarted at about the same time, and none is: "
        f"they share {', '.join(shared) or 'nothing that is known'}; {names}"
    )


def _shared(
    candidates: Sequence[Candidate], found: Sequence[frozenset[tuple[str, str]]]
) -> list[tuple[tuple[str, str], int]]:
    """Return what several runs have in common, the most common first, with the number of runs."""
    runs = defaultdict(set)
    for candidate, pairs in zip(candidates, found, strict=True):
        for pair in pairs:
            runs[pair].add(candidate.run_id)
    counts = Counter({pair: len(of_pair) for pair, of_pair in runs.items() if len(of_pair) > 1})
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Storms:
    """Begins and ends storms, cluster by cluster. What it decides is stored: a new process goes on with it.

    Args:
        world: as of the round.
        store: for incidents and switches.
        limit: how many runs may be restarted within a window.
        window: seconds.
    """

    def __init__(self, world: World, store: Store, *, limit: int, window: float) -> None:
        self._world = world
        self._store = store
        self._limit = limit
        self._window = window
        # The nodes of attempts, by their keys, for the scheduler shows none of a job that has ended.
        self._nodes: dict[str, tuple[str, ...]] = {}
        # When open restarts were decided, by their incidents.
        self._decided: dict[str, float] = {}

    def watch(self) -> None:
        """Judge the restarts that were proposed and those that were made lately; before any of them is begun."""
        proposals: dict[str, list[Incident]] = defaultdict(list)
        for incident in self._store.proposals_since(self._world.clock.now() - self._window):
            if incident.run_id == CANARY_JOB:  # it is no evidence about other runs
                continue
            proposals[incident.cluster].append(incident)
        alerts = self._alerts() if proposals else {}
        self._decided = self._store.decided() if proposals else {}
        self._look_up([each for of_cluster in proposals.values() for each in of_cluster])
        for cluster, found in proposals.items():
            self._judge(cluster, found, alerts)
        storms = {each.scope for each in self._store.switches.storms()}
        for cluster in storms:
            if pages := self._pages(cluster):
                self._go_on(cluster, pages, proposals.get(cluster, []), alerts)
        for page in self._store.escalations():
            if page.alert == STORM and page.cluster not in storms:
                self._end(page, "a person has resumed")

    def _judge(self, cluster: str, proposals: Sequence[Incident], alerts: _Alerts) -> None:
        waiting = any(each.state is State.PROPOSED for each in proposals)
        if not waiting or self._store.switches.storm(cluster) is not None:
            return
        reason = self._reason(cluster, proposals, alerts)
        if reason is not None:
            page = self._page(cluster, reason)
            self._store.switches.begin_storm(cluster, reason, lambda connection: self._store.insert(connection, page))
            log.error("storm: %s", reason)

    def _go_on(self, cluster: str, pages: Sequence[Incident], proposals: Sequence[Incident], alerts: _Alerts) -> None:
        """End a storm whose cause has gone, where few runs remain; else page again about runs that are news.

        Whoever has taken the page over knows the runs of that time: the others would wait without a word.
        """
        waiting = [each for each in proposals if each.state is State.PROPOSED]
        if any(isinstance(self._job(each), Unknown) for each in waiting):
            return
        reason = self._reason(cluster, proposals, alerts)
        if reason is None:
            self._store.switches.end_storm(cluster)
            for page in pages:
                self._end(page, "the cause has gone, and few runs are to be restarted")
            return
        taken_over = max(page.updated for page in pages)
        if not any(page.paging for page in pages) and any(self._decided_at(each) > taken_over for each in waiting):
            self._store.add(self._page(cluster, reason))

    def _pages(self, cluster: str) -> list[Incident]:
        """Return all pages about storms of a cluster, also those that a person has taken over."""
        of_no_run = self._store.of_run("", cluster)
        return [each for each in of_no_run if each.alert == STORM and each.cluster == cluster]

    def _end(self, page: Incident, detail: str) -> None:
        if page.paging:
            self._store.move(page, page.state, detail, paging=False)
            log.info("storm: %s", detail)

    def _reason(self, cluster: str, proposals: Sequence[Incident], alerts: _Alerts) -> str | None:
        since = self._store.switches.resumed(cluster)
        found = [self._candidate(each, alerts) for each in proposals if self._decided_at(each) > since]
        return judge(found, self._limit)

    def _decided_at(self, incident: Incident) -> float:
        """Return when a restart was decided; of one that is over, when its alert was received."""
        return self._decided.get(incident.id, incident.created)

    def _candidate(self, incident: Incident, alerts: _Alerts) -> Candidate:
        traits = {("alert", incident.alert)} | ({("error type", incident.error_type)} if incident.error_type else set())
        causes = {("node", node) for node in self._nodes.get(incident.attempt_key or "", ())}
        for alert in alerts.get((incident.cluster, incident.run_id), ()):
            named = ((kind, alert.label(label)) for label, kind in _CAUSES.items())
            causes |= {(kind, name) for kind, name in named if name}
        return Candidate(incident.run_id, frozenset(traits), frozenset(causes))

    def _look_up(self, proposals: Sequence[Incident]) -> None:
        """Note the nodes of the attempts that have failed, by the scheduler, else as they were known last."""
        found = {key: self._nodes[key] for each in proposals if (key := each.attempt_key or "") in self._nodes}
        ended: dict[str, str] = {}
        for each in proposals:
            key, job = each.attempt_key or "", self._job(each)
            if not isinstance(job, ScheduledJob) or job.generation != each.generation or key in found:
                continue
            if job.nodes:
                found[key] = job.nodes
            else:
                ended[key] = job.job_id
        known = self._world.nodes.of_jobs(ended.values()) if ended else {}
        if not isinstance(known, Unknown):
            found |= {key: tuple(known[job_id]) for key, job_id in ended.items() if known.get(job_id)}
        self._nodes = found

    def _job(self, incident: Incident) -> object:
        driver = self._world.drivers.get(incident.scheduler or "")
        return driver.job(incident.job_id) if driver and incident.job_id and incident.attempt_key else None

    def _alerts(self) -> _Alerts:
        firing = self._world.alerts.firing()
        found: dict[tuple[str, str], list[Alert]] = defaultdict(list)
        for alert in () if isinstance(firing, Unknown) else firing:
            if alert.run_id:
                found[alert.cluster, alert.run_id].append(alert)
        return found

    def _page(self, cluster: str, reason: str) -> Incident:
        now = self._world.clock.now()
        return Incident(
            id=uuid.uuid4().hex, run_id="", attempt=None, attempt_key=None, job_id=None, scheduler=None, alert=STORM,
            failure_mode="unknown", error_type=None, state=State.ESCALATED, action=Action.ESCALATE,
            reason=f"storm: {reason}. Remove the cause, then trainwarden-remediator resume", policy="",
            budget_used=None, budget_limit=None, step_before=None, created=now, updated=now, paging=True,
            cluster=cluster,
        )  # fmt: skip
