"""Comparing things on a machine that never is quite the same: in turns, and by the ratio within each turn."""

import statistics
from collections.abc import Callable, Mapping, Sequence


def take_turns(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run every case once in each round, forwards and backwards by turns, so that what disturbs one disturbs all.

    Returns the results of each case, by round.
    """
    results: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    for _ in range(rounds):
        for name in order:
            results[name].append(cases[name]())
        order.reverse()
    return results


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over all rounds of what the one took, divided by what the other took in the same round."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
