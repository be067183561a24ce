"""Values from a team's own history: what was usual, and how many alerts each value would have made of it.

All is computed by Prometheus, a day at a time, so that no sample of a large cluster travels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainwarden.clients.prometheus import PrometheusClient
    from trainwarden.rules.build import Rules
    from trainwarden.rules.values import Value

_DAY = 86_400
_STEP_SECONDS = 60
# Of the samples of one series in one day.
_QUANTILE = 0.99
# What two digits of can stand in a file of values.
_LEAST, _MOST = 1e-8, 1e15
# With less of it what is rare has hardly been seen.
ENOUGH_MINUTES = _DAY // 60
_PHASES = ("init", "compile", "load", "train", "eval", "checkpoint")


@dataclass(frozen=True)
class Threshold:
    """What is compared with what.

    Attributes:
        present: the value now; None where no run states one.
        history: query for what is compared with it.
        wait_seconds: for how long it has to be crossed before an alert fires.
    """

    name: str
    unit: str
    present: float | None
    history: str
    is_ceiling: bool = True
    wait_seconds: float = 0.0
    least: float = 0.0
    most: float = math.inf


@dataclass(frozen=True)
class Suggestion:
    """A threshold with a value from its history.

    Attributes:
        usual: what the worst series reached in 99 % of its worst day.
        proposed: None where the usual value is zero or below, or cannot be written: nothing follows from it.
        series: how many were seen on the day with the most of them.
        minutes: for how long any series was seen.
        alerts_now, alerts_proposed: how often the present and the proposed value were crossed for long enough.
    """

    threshold: Threshold
    usual: float
    proposed: float | None
    series: int
    minutes: int
    alerts_now: int | None
    alerts_proposed: int | None


def thresholds_of(rules: Rules, values: Iterable[Value]) -> list[Threshold]:
    """Return the values that have a history."""
    return [
        Threshold(
            value.name,
            value.unit,
            value.size(rules.settings.values.get(value.name, value.default)),
            value.history,
            is_ceiling=value.is_ceiling,
            wait_seconds=rules.wait_of(value.name),
            least=value.least,
            most=value.most,
        )
        for value in values
        if value.history
    ]


def budgets(client: PrometheusClient, end: float, days: int) -> Iterator[Threshold]:
    """Yield the budgets that runs state themselves: the longest silence, and the longest standstill in each phase."""
    silence = "run:training_silence_seconds:current and on (cluster, run_id) run:training_running:bool == 1"
    yield Threshold("stale", "seconds", _stated(client, "max(training_stale_threshold_seconds)", end, days), silence)
    for phase in _PHASES:
        matcher = f'{{phase="{phase}"}}'
        yield Threshold(
            phase,
            "seconds",
            _stated(client, f"max(training_stall_threshold_seconds{matcher})", end, days),
            "run:training_motionless_seconds:current and on (cluster, run_id) run:training_running:bool == 1"
            f" and on (cluster, run_id) run:training_phase:current{matcher}",
        )


def suggest(
    client: PrometheusClient, thresholds: Iterable[Threshold], *, end: float, days: int, margin: float
) -> Iterator[Suggestion]:
    """Yield a suggestion for each threshold that has a history in the `days` before `end`, Unix seconds.

    Raises:
        PrometheusError: Prometheus does not answer, or not completely.
    """
    last = end // _STEP_SECONDS * _STEP_SECONDS
    ends = [last - day * _DAY for day in reversed(range(days))]
    for threshold in thresholds:
        extremes, series, minutes = _extremes(client, threshold, ends)
        if not extremes:
            continue
        usual = max(extremes) if threshold.is_ceiling else min(extremes)
        proposed = _rounded(threshold, usual, margin) if usual > 0 else None
        if proposed is not None and not _LEAST <= proposed < _MOST:
            proposed = None
        now = None if threshold.present is None else _alerts(client, threshold, threshold.present, ends)
        then = None if proposed is None else _alerts(client, threshold, proposed, ends)
        yield Suggestion(threshold, usual, proposed, series, minutes, now, then)


def _stated(client: PrometheusClient, query: str, end: float, days: int) -> float | None:
    """Return the largest that any run stated, of samples an hour apart."""
    samples = client.query(f"max_over_time(({query})[{days}d:1h])", end)
    return samples[0].value if samples else None


def _extremes(client: PrometheusClient, threshold: Threshold, ends: Sequence[float]) -> tuple[list[float], int, int]:
    """Return what each series reached on each day, how many series there were at most, and for how many minutes."""
    quantile = _QUANTILE if threshold.is_ceiling else 1 - _QUANTILE
    query = f"quantile_over_time({quantile:g}, ({threshold.history})[1d:{_STEP_SECONDS}s])"
    # Prometheus 2 counts the first moment of a window, 3 does not.
    seen = f"count_over_time((group({threshold.history}))[{_DAY - 1}s:{_STEP_SECONDS}s])"
    found: list[float] = []
    most = minutes = 0
    for end in ends:
        samples = [sample.value for sample in client.query(query, end) if math.isfinite(sample.value)]
        found += samples
        most = max(most, len(samples))
        if samples:
            minutes += round(sum(sample.value for sample in client.query(seen, end)))
    return found, most, minutes


def _alerts(client: PrometheusClient, threshold: Threshold, value: float, ends: Sequence[float]) -> int:
    """Return how often a series crossed the value and stayed beyond it for as long as its alert waits."""
    sign = ">" if threshold.is_ceiling else "<"
    crossed = f"(({threshold.history}) {sign} {value!r})"
    if threshold.wait_seconds > _STEP_SECONDS:
        window = f"[{threshold.wait_seconds:.0f}s:{_STEP_SECONDS}s]"
        crossed = f"(min_over_time((({threshold.history}) {sign} bool {value!r}){window}) == 1)"
    # Where it was not so one step before.
    begun = f"{crossed} unless min_over_time({crossed}[1s:1s] offset {_STEP_SECONDS}s)"
    # A second less than a day: Prometheus 2 counts the first moment of a window, 3 does not.
    daily = f"sum(count_over_time(({begun})[{_DAY - 1}s:{_STEP_SECONDS}s]))"
    samples = client.query(f"count({crossed})", ends[0] - _DAY)
    for end in ends:
        samples = [*samples, *client.query(daily, end)]
    return round(sum(sample.value for sample in samples))


def _rounded(threshold: Threshold, usual: float, margin: float) -> float:
    """Return a value beyond what is usual, of two digits."""
    wanted = usual * margin if threshold.is_ceiling else usual / margin
    wanted = min(max(wanted, threshold.least), threshold.most)
    digit = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    rounded = (math.ceil if threshold.is_ceiling else math.floor)(round(wanted / digit, 6)) * digit
    if threshold.unit == "count":
        rounded = math.ceil(rounded) if threshold.is_ceiling else math.floor(rounded)
    return min(max(float(f"{rounded:.6g}"), threshold.least), threshold.most)


def lines(suggestions: Iterable[Suggestion], run_budgets: Iterable[Suggestion], *, days: int) -> Iterator[str]:
    """Yield the lines of a file of values, each proposal with its evidence."""
    yield f"# Made by `trainwarden rules suggest` from {days} days; read it before you build with it."
    of_values, found = list(suggestions), list(run_budgets)
    seen = max((each.minutes for each in [*of_values, *found]), default=0)
    if seen < ENOUGH_MINUTES:
        yield f"# {short_history(seen)}"
    yield "values:"
    for each in of_values:
        yield f"  # {_evidence(each)}"
        if each.proposed is None:
            why = "is not above zero" if each.usual <= 0 else "is too near to zero, or too large, for a rule"
            yield f"  # {each.threshold.name}: no proposal, since what is usual {why}"
            continue
        unit = "s" if each.threshold.unit == "duration" else ""
        yield f"  {each.threshold.name}: {_plain(each.proposed)}{unit}"
    if found:
        yield "# What runs state themselves, and no rule: STALE_MINUTES, and TRAINWARDEN_STALL_SECONDS by phase."
    for each in found:
        proposed = "no proposal" if each.proposed is None else f"{each.proposed:.15g} s"
        yield f"#   {each.threshold.name}: {proposed}; {_evidence(each)}"


def _plain(number: float) -> str:
    """Return a number without an exponent, which no value may have."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def short_history(minutes: int) -> str:
    """Return the warning about a history that is too short to judge by."""
    return f"the history has {minutes} minutes, less than a day: what is rare is not in it, do not build with it yet"


def _evidence(each: Suggestion) -> str:
    reached = "at most" if each.threshold.is_ceiling else "at least"
    now = (
        "no value now"
        if each.alerts_now is None
        else f"{each.alerts_now} alerts with {each.threshold.present:.15g} now"
    )
    then = "" if each.alerts_proposed is None else f", {each.alerts_proposed} with this"
    hours = "" if each.minutes >= ENOUGH_MINUTES else f", seen for {each.minutes} minutes"
    return f"{reached} {each.usual:.4g} in 99 % of the worst day of {each.series} series{hours}; {now}{then}"
