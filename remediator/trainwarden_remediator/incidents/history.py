"""What was done for a run before: its restarts on record, and the budgets that they have used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Ends that are no failure of the run: starting it again costs no budget.
COSTLESS = frozenset(("preempted", "time_limit"))


@dataclass(frozen=True)
class PastRestart:
    """One restart on record, made or decided.

    `at` is Unix time; the steps are those known at its decision. `excluded` are the nodes that it was to avoid, with
    the Unix time of the evidence against each.
    """

    mode: str
    error_type: str | None
    at: float
    step: float | None = None
    checkpoint_step: float | None = None
    excluded: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """Restarts of a run so far.

    Attributes:
        used: per failure mode.
        fruitless: of all modes, since the run last gained a step.
        made: when each was decided, Unix time, oldest first.
        same_cause: for the cause at hand, since the run's last newer checkpoint.
        excluded: nodes that its restarts were to avoid, with the Unix time of the last evidence against each.
        costless: after a preemption or a time limit, since the run last gained a step.
    """

    used: Mapping[str, int]
    fruitless: int = 0
    made: tuple[float, ...] = ()
    same_cause: int = 0
    excluded: Mapping[str, float] = field(default_factory=dict)
    costless: int = 0

    def since(self, moment: float) -> int:
        """Return the number of restarts since a moment."""
        return sum(at > moment for at in self.made)


def history_of(
    restarts: Iterable[PastRestart],
    mode: str,
    error_type: str | None,
    high_water: float | None,
    checkpoint_step: float | None,
) -> History:
    """Count the restarts of a run, oldest first, for a failure at hand.

    Those after a preemption or a time limit cost nothing, and are counted by themselves. The cause is the failure mode
    and the error type. A restart counts for the same cause until a newer checkpoint than the one of its decision is
    reported; likewise as fruitless until a higher step is.
    """
    restarts = list(restarts)
    costly = [each for each in restarts if each.error_type not in COSTLESS]
    excluded: dict[str, float] = {}
    for each in costly:
        for node, at in each.excluded.items():
            excluded[node] = max(at, excluded.get(node, at))
    return History(
        used=Counter(each.mode for each in costly),
        fruitless=sum(not has_risen(each.step, high_water) for each in costly),
        made=tuple(each.at for each in costly),
        same_cause=sum(
            (each.mode, each.error_type) == (mode, error_type) and not has_risen(each.checkpoint_step, checkpoint_step)
            for each in costly
        ),
        excluded=excluded,
        costless=sum(each.error_type in COSTLESS and not has_risen(each.step, high_water) for each in restarts),
    )


def has_risen(before: float | None, now: float | None) -> bool:
    """Return whether a count has risen. What was not reported before counts as risen once it is reported."""
    return now is not None and (before is None or now > before)
