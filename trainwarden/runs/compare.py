"""`trainwarden compare RUN RUN…`: trends over runs and over the attempts of each, from their records alone."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.redaction import plain
from trainwarden.runs.arguments import GPU_HOUR_DOLLARS, gpu_count, gpu_price
from trainwarden.runs.assessment import Assessment, assess
from trainwarden.runs.attempts import AttemptHistory, attempts_of
from trainwarden.runs.places import (
    CannotRead,
    RecordFolder,
    RecordPrefix,
    add_place_arguments,
    fetch_run,
    open_place,
)
from trainwarden.runs.table import UNKNOWN, change_text, duration_text, number_text, print_table, write

# Two values are a difference, and no trend.
_LEAST_FOR_TREND = 3
# In dollars; beyond it a record is wrong.
_LARGEST_PRICE = 1e12
_LABELS = {
    "duration_seconds": "duration",
    "steps_per_second": "steps/s",
    "tokens_per_second": "tokens/s",
    "loss": "loss",
    "gpu_hours": "cost",
}
_COLUMNS = ("RUN", "ATTEMPT", "STATUS", "DURATION", "STEPS", "STEPS/S", "TOKENS/S", "LOSS", "COST", "FAILURE")


@dataclass(frozen=True)
class RunHistory:
    """A run with all its attempts; sums are over those where the value is known, None where it never is."""

    run: Assessment
    attempts: tuple[AttemptHistory, ...]

    @property
    def duration_seconds(self) -> float | None:
        """Time of all attempts, without that between them."""
        return _sum([each.duration_seconds for each in self.attempts])

    @property
    def steps(self) -> float | None:
        """Steps of all attempts; repeated ones count again."""
        return _sum([each.steps for each in self.attempts])

    @property
    def steps_per_second(self) -> float | None:
        """Steps by time, of the attempts where both are known."""
        known = [each for each in self.attempts if each.steps is not None and each.duration_seconds]
        seconds = sum(each.duration_seconds or 0.0 for each in known)
        return sum(each.steps or 0 for each in known) / seconds if seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Mean over the attempts, weighted by their time."""
        known = [each for each in self.attempts if each.tokens_per_second is not None and each.duration_seconds]
        seconds = sum(each.duration_seconds or 0.0 for each in known)
        tokens = sum((each.tokens_per_second or 0.0) * (each.duration_seconds or 0.0) for each in known)
        return tokens / seconds if seconds else None

    @property
    def loss(self) -> float | None:
        """The last loss."""
        return next((each.loss for each in reversed(self.attempts) if each.loss is not None), None)

    @property
    def failures(self) -> dict[str, int]:
        """How many attempts each cause ended."""
        return dict(Counter(each.failure for each in self.attempts if each.failure))

    @property
    def gpu_hours(self) -> float | None:
        """GPU hours of all attempts."""
        return _sum([each.gpu_hours for each in self.attempts])

    def to_json(self, gpu_hour_dollars: float) -> dict[str, Any]:
        """Return it as JSON; null is unknown."""
        hours = self.gpu_hours
        return {
            "run_id": self.run.run_id,
            "status": self.run.status,
            "duration_seconds": self.duration_seconds,
            "steps": self.steps,
            "steps_per_second": self.steps_per_second,
            "tokens_per_second": self.tokens_per_second,
            "loss": self.loss,
            "failures": self.failures,
            "gpu_hours": hours,
            "cost_dollars": None if hours is None else hours * gpu_hour_dollars,
            "attempts": [each.to_json(gpu_hour_dollars) for each in self.attempts],
        }


def main(argv: list[str]) -> int:
    """Print the comparison; status 2 for misuse or a run that is not there, 3 if it cannot be read now."""
    parser = CommandLine(
        prog="trainwarden compare",
        description="Compare runs, and the attempts of each: duration, steps, speed, loss, cost, failures.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="ids of runs; the others are compared with the first")
    add_place_arguments(parser)
    parser.add_argument("--gpus", type=gpu_count, help="GPUs of each run, where its record does not show how many")
    parser.add_argument(
        "--gpu-hour-dollars", type=gpu_price, default=GPU_HOUR_DOLLARS, metavar="PRICE",
        help=f"of one GPU for one hour (default: {GPU_HOUR_DOLLARS:g}, as in rules/values.yml)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        with open_place(arguments) as place:
            histories = read_histories(place, arguments.runs, arguments.gpus)
    except UsageError as error:
        parser.error(plain(str(error)))
    except CannotRead as error:
        print(f"trainwarden compare: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    if arguments.json:
        price = arguments.gpu_hour_dollars
        runs = [each.to_json(price) for each in histories]
        print(json.dumps({"runs": runs, "changes": changes(histories), "trends": trends(histories)}))
    else:
        _print(histories, arguments.gpu_hour_dollars)
    return 0


def read_histories(
    place: RecordFolder | RecordPrefix, run_ids: Sequence[str], gpus: int | None = None
) -> list[RunHistory]:
    """Return the runs in the order in which they are named; raises UsageError and CannotRead."""
    histories = []
    for run_id in dict.fromkeys(run_ids):
        folder = fetch_run(place, run_id, history=True)
        run = assess(folder, time.time(), fetched=isinstance(place, RecordPrefix), run_id=run_id)
        histories.append(RunHistory(run, tuple(attempts_of(folder, run, gpus))))
    return histories


def changes(histories: Sequence[RunHistory]) -> list[dict[str, Any]]:
    """Return by which ratio each further run differs from the first: -0.1 is a tenth less; null is unknown."""
    first = histories[0]
    names = ("duration_seconds", "steps", "steps_per_second", "tokens_per_second", "loss", "gpu_hours")
    return [
        {
            "run_id": each.run.run_id,
            "compared_with": first.run.run_id,
            **{name: _change(getattr(first, name), getattr(each, name)) for name in names},
        }
        for each in histories[1:]
    ]


def trends(histories: Sequence[RunHistory]) -> list[dict[str, Any]]:
    """Return how values go on over three or more runs, in the order in which they are named, and attempts of a run.

    `change` is the mean one from each to the next: -0.1 is a tenth less; `steady` is whether all are in one direction.
    """
    series: list[tuple[str | None, Sequence[RunHistory] | Sequence[AttemptHistory]]] = [(None, histories)]
    series += [(each.run.run_id, each.attempts) for each in histories]
    found = []
    for run_id, items in series:
        values = {
            name: trend for name in _LABELS if (trend := _trend([getattr(each, name) for each in items])) is not None
        }
        if values:
            found.append({"run_id": run_id, "of": "attempts" if run_id else "runs", "count": len(items), **values})
    return found


def _trend(values: Sequence[float | None]) -> dict[str, Any] | None:
    known = [value for value in values if value is not None and value > 0]
    if len(known) < _LEAST_FOR_TREND:
        return None
    rises = {after > before for before, after in pairwise(known)}
    mean = (known[-1] / known[0]) ** (1 / (len(known) - 1)) - 1
    return {"change": mean, "steady": len(rises) == 1 and all(before != after for before, after in pairwise(known))}


def _print(histories: Sequence[RunHistory], price: float) -> None:
    rows = []
    for history in histories:
        rows += [_attempt_row(history.run.run_id, each, price) for each in history.attempts]
        if len(history.attempts) > 1:
            rows.append(_run_row(history, price))
    print_table(_COLUMNS, rows)
    for change in changes(histories):
        parts = [f"{label} {change_text(change[name])}" for name, label in _LABELS.items() if change[name] is not None]
        if parts:
            write(f"{change['run_id']} against {change['compared_with']}: {', '.join(parts)}\n")
    for trend in trends(histories):
        parts = [
            f"{label} {change_text(trend[name]['change'])}{' each time' if trend[name]['steady'] else ''}"
            for name, label in _LABELS.items()
            if name in trend
        ]
        of = f"{trend['count']} attempts of {trend['run_id']}" if trend["run_id"] else f"{trend['count']} runs"
        write(f"from one to the next of {of}, on average: {', '.join(parts)}\n")


def _attempt_row(run_id: str, each: AttemptHistory, price: float) -> tuple[str, ...]:
    return (
        run_id,
        str(each.attempt),
        each.status or UNKNOWN,
        duration_text(each.duration_seconds),
        UNKNOWN if each.steps is None else str(each.steps),
        number_text(each.steps_per_second),
        number_text(each.tokens_per_second),
        number_text(each.loss),
        _dollars(each.gpu_hours, price),
        each.failure or "",
    )


def _run_row(history: RunHistory, price: float) -> tuple[str, ...]:
    count = sum(history.failures.values())
    return (
        history.run.run_id,
        "all",
        history.run.status,
        duration_text(history.duration_seconds),
        UNKNOWN if history.steps is None else f"{history.steps:g}",
        number_text(history.steps_per_second),
        number_text(history.tokens_per_second),
        number_text(history.loss),
        _dollars(history.gpu_hours, price),
        f"{count} of {len(history.attempts)} attempts" if count else "",
    )


def _dollars(hours: float | None, price: float) -> str:
    if hours is None:
        return UNKNOWN
    dollars = hours * price
    return f"{dollars:.2f} $" if dollars < _LARGEST_PRICE else f"{dollars:.3g} $"


def _change(first: float | None, other: float | None) -> float | None:
    return None if not first or other is None else other / first - 1


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
