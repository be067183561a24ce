"""What the remediator would have done, against what people did: the score by which a policy may be let act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainwarden_remediator.database.database import reading
from trainwarden_remediator.database.schema import incidents, scores
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Incident
from trainwarden_remediator.observe.evidence import ReportedRun, RunSource
from trainwarden_remediator.observe.world import Clock

RESTART, LEAVE = "restart", "leave"
# What became of the attempt without the remediator.
RESTARTED, RECOVERED, CANCELLED, LEFT, UNSEEN, ACTED = (
    "restarted", "recovered", "cancelled", "left", "unseen", "acted",
)  # fmt: skip
OUTCOMES = (RESTARTED, RECOVERED, CANCELLED, LEFT)
# After that nobody will do anything about it any more.
_SETTLED_AFTER_SECONDS = 24 * 3600.0
_LOOK_AGAIN_SECONDS = 60.0
_OPEN = (
    sa.select(scores, incidents.c.attempt)
    .outerjoin(incidents, incidents.c.id == scores.c.incident_id)
    .where(scores.c.outcome.is_(None))
)


class Scores:
    """Keeps the score. `note` when a decision is made, `settle` from time to time; not for several threads."""

    def __init__(self, engine: sa.Engine, clock: Clock, runs: RunSource) -> None:
        self._engine = engine
        self._reading = reading(engine)
        self._clock = clock
        self._runs = runs
        self._looked: float | None = None  # monotonic

    def note(self, incident: Incident, would: str) -> None:
        """Write down what the policy would have done about a failed attempt, unless that is on record already."""
        if incident.failure_mode == "success":
            return
        values = {
            "incident_id": incident.id,
            "cluster": incident.cluster,
            "run_id": incident.run_id,
            "attempt_key": incident.attempt_key or "",
            "policy": incident.policy,
            "would": would,
            "decided": self._clock.now(),
            "step_before": incident.step_before,
        }
        same = sa.and_(
            *(scores.c[name] == values[name] for name in ("cluster", "run_id", "attempt_key", "policy", "would"))
        )
        with self._engine.begin() as connection:
            if connection.execute(sa.select(scores.c.incident_id).where(same)).first() is None:
                connection.execute(scores.insert().values(**values))

    def settle(self) -> None:
        """Once a minute, read the runs whose scores are open, and write down what became of them."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_AGAIN_SECONDS:
            return
        self._looked = now
        with self._reading.begin() as connection:
            waiting = connection.execute(_OPEN).all()
        runs = self._runs.runs({row.run_id for row in waiting}) if waiting else {}
        for row in waiting:
            run = runs[row.run_id]
            if not isinstance(run, Unknown) and (outcome := self._outcome(row, run)) is not None:
                self._write(row.incident_id, outcome)

    def _outcome(self, row: sa.Row[tuple[object, ...]], run: ReportedRun | None) -> str | None:
        """Return what became of an attempt; None while that is open."""
        late = self._clock.now() - row.decided > _SETTLED_AFTER_SECONDS
        if run is None:
            return UNSEEN if late else None
        if row.attempt is not None and run.attempt < row.attempt:
            return UNSEEN if late else None  # an older one is shown while the exporter of this one is away
        if run.attempt_key != row.attempt_key:
            return ACTED if self._is_ours(row) else RESTARTED
        if run.state == "cancelled":
            return CANCELLED
        passed = run.high_water is not None and (row.step_before is None or run.high_water > row.step_before)
        if run.state == "succeeded" or (run.state == "running" and passed):
            return RECOVERED
        return LEFT if late else None

    def _is_ours(self, row: sa.Row[tuple[object, ...]]) -> bool:
        """Return whether the remediator itself has replaced the attempt, by a later decision."""
        ours = sa.select(incidents.c.id).where(
            incidents.c.run_id == row.run_id,
            incidents.c.attempt_key == row.attempt_key,
            incidents.c.committed.is_not(None),
        )
        with self._reading.begin() as connection:
            return connection.execute(ours).first() is not None

    def _write(self, incident_id: str, outcome: str) -> None:
        with self._engine.begin() as connection:
            changes = {"outcome": outcome, "settled": self._clock.now()}
            connection.execute(scores.update().where(scores.c.incident_id == incident_id).values(**changes))

    def families(self) -> Iterator[Metric]:
        """Return the metric."""
        text = "Attempts by what their policy would have done and what became of them without the remediator."
        family = GaugeMetricFamily("trainwarden_remediator_scores", text, labels=["policy", "would", "outcome"])
        with self._reading.begin() as connection:
            for score in read_scores(connection).values():
                for (would, outcome), count in sorted(score.counts.items()):
                    family.add_metric([score.policy, would, outcome], count)
        yield family


@dataclass(frozen=True)
class Score:
    """The score of one policy: attempts by what it would have done and what became of them, which `open` ones lack."""

    policy: str
    counts: Mapping[tuple[str, str], int]
    open: int = 0

    @property
    def precision(self) -> float | None:
        """Of the restarts that it would have made, the part that people made as well; None without any."""
        return self._part(RESTART, RESTARTED)

    def _part(self, would: str, outcome: str) -> float | None:
        settled = sum(self.counts.get((would, each), 0) for each in OUTCOMES)
        return self.counts.get((would, outcome), 0) / settled if settled else None

    @property
    def missed(self) -> float | None:
        """Of the failures that it would have left, the part that people restarted; None without any."""
        return self._part(LEAVE, RESTARTED)


def read_scores(connection: sa.Connection, policy: str | None = None, since: float = 0.0) -> dict[str, Score]:
    """Return the score of each policy, by name, over any connection."""
    query = sa.select(scores.c.policy, scores.c.would, scores.c.outcome, sa.func.count().label("number"))
    query = query.where(scores.c.decided >= since).group_by(scores.c.policy, scores.c.would, scores.c.outcome)
    if policy is not None:
        query = query.where(scores.c.policy == policy)
    counts: dict[str, Counter[tuple[str, str]]] = {}
    undecided: Counter[str] = Counter()
    for row in connection.execute(query):
        of_policy = counts.setdefault(row.policy, Counter())
        if row.outcome is None:
            undecided[row.policy] += row.number
        else:
            of_policy[row.would, row.outcome] += row.number
    return {name: Score(name, counts[name], undecided[name]) for name in sorted(counts)}


_LINES = (
    (RESTART, RESTARTED, "would have restarted, and it was restarted without it"),
    (RESTART, RECOVERED, "would have restarted, and the run recovered by itself"),
    (RESTART, CANCELLED, "would have restarted, and a person cancelled the run"),
    (RESTART, LEFT, "would have restarted, and nobody did anything for a day"),
    (LEAVE, RESTARTED, "would have stayed out, and it was restarted without it"),
    (LEAVE, RECOVERED, "would have stayed out, and the run recovered by itself"),
    (LEAVE, CANCELLED, "would have stayed out, and a person cancelled the run"),
    (LEAVE, LEFT, "would have stayed out, and nobody did anything for a day"),
)


def score_as_json(score: Score) -> dict[str, object]:
    """Return the score of one policy for programs."""
    counts = {
        would: {outcome: score.counts.get((would, outcome), 0) for outcome in OUTCOMES} for would in (RESTART, LEAVE)
    }
    ratios = {"restarts_made_by_people_ratio": score.precision, "left_but_restarted_ratio": score.missed}
    return {"policy": score.policy, **counts, "open": score.open, **ratios}


def score_as_text(score: Score) -> str:
    """Return the score of one policy as lines for a person."""
    lines = [f"policy {score.policy}"]
    lines += [f"{score.counts.get((would, outcome), 0):6}  {text}" for would, outcome, text in _LINES]
    lines.append(f"{score.open:6}  not known yet")
    for name, value in (("restarts that people made as well", score.precision), ("left, but restarted", score.missed)):
        lines.append(f"  {name}: {'no case yet' if value is None else f'{value:.0%}'}")
    return "\n".join(lines) + "\n"
