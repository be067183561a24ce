"""Scenarios for promtool: what exporters show from second to second, and which alerts that must raise."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = [*sorted((ROOT / "rules/recording").glob("*.yml")), *sorted((ROOT / "rules/alerts").glob("*.yml"))]
STEP = 5  # seconds between two scrapes, and between two evaluations
LIVE = math.inf
STALL = {"init": 90.0, "train": 30.0, "eval": 120.0, "checkpoint": 120.0}

Page = dict[str, float]
Alert = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Scenario:
    """`page(t)` is all that is scraped at second t; `alerts` are all that fire at a second."""

    name: str
    page: Callable[[int], Page]
    alerts: Mapping[int, Sequence[Alert]]

    @property
    def seconds(self) -> int:
        """The last second that is asked about."""
        return max(self.alerts)


def run(
    t: int,
    *,
    run_id: str = "r1",
    instance: str = "n1:9745",
    host: str = "n1",
    job_id: str = "41",
    attempt: int | None = 0,
    start: float | None = 1,
    state: str = "running",
    end: float | None = None,
    phase: str = "train",
    phase_start: float | None = 0,
    inferred: bool = False,
    metadata: float | None = LIVE,
    progress: float | None = LIVE,
    step: float | None = LIVE,
    moved: float | None = None,
    steps_on: bool = False,
    ranks: Mapping[int, float] | None = None,
    read: float = LIVE,
    failure: Mapping[str, str] | None = None,
    failed_at: float | None = None,
    stale: float = 60,
    stall: Mapping[str, float] | None = None,
) -> Page:
    """What an exporter shows of a run. A time is the last one of its kind: 60 follows the clock up to second 60.

    `moved` is the last change of the step, its last advance unless given. The steps of a failed run end with it, unless
    they go on.
    """
    if state == "failed" and not steps_on and step is not None:
        step = min(each for each in (step, end, failed_at, metadata) if each is not None)
    labels = f'run_id="{run_id}",instance="{instance}",job="trainwarden-exporter"'
    page: dict[str, float | None] = {
        f'training_run_info{{{labels},attempt_key="slurm:{job_id}:{attempt}",job_id="{job_id}",scheduler="slurm",'
        f'host="{host}",policy="p{attempt}"}}': 1,
        f'training_attempt_info{{{labels},attempt="{"" if attempt is None else attempt}",job_id="{job_id}",'
        f'scheduler="slurm",node="{host}"}}': 1,
        f"training_run_attempt{{{labels}}}": attempt,
        f"training_attempt_start_timestamp_seconds{{{labels}}}": start,
        f"training_phase_start_timestamp_seconds{{{labels}}}": phase_start,
        f"training_phase_inferred{{{labels}}}": 1 if inferred else None,
        f'training_heartbeat_timestamp_seconds{{{labels},source="metadata"}}': _last(t, metadata),
        f'training_heartbeat_timestamp_seconds{{{labels},source="progress"}}': _last(t, progress),
        f"training_step_timestamp_seconds{{{labels}}}": _last(t, step),
        f"training_step_change_timestamp_seconds{{{labels}}}": _last(t, step if moved is None else moved),
        f"training_run_end_timestamp_seconds{{{labels}}}": end,
        f"training_failure_timestamp_seconds{{{labels}}}": failed_at,
        f"training_stale_threshold_seconds{{{labels}}}": stale,
        observed(instance): _last(t, read),
    }
    for each in ("running", state):
        page[f'training_run_state{{{labels},state="{each}"}}'] = float(each == state)
    page[f'training_phase{{{labels},phase="{phase}"}}'] = 1
    for each, seconds in (stall or STALL).items():
        page[f'training_stall_threshold_seconds{{{labels},phase="{each}"}}'] = seconds
    page |= _liveness(t, labels, start, phase, phase_start, metadata, progress, step, moved, ranks, inferred=inferred)
    page[f"training_stall_budget_seconds{{{labels}}}"] = (stall or STALL).get(phase)
    page |= ranks_of(t, run_id, instance, host, ranks or {}, stale if state == "running" else LIVE)
    if failure is not None:
        verdict = ",".join(f'{key}="{value}"' for key, value in failure.items())
        page[f"training_failure_info{{{labels},{verdict}}}"] = 1
    return present(page)


def present(page: Mapping[str, float | None]) -> Page:
    """The series of a page that are shown."""
    return {series: value for series, value in page.items() if value is not None}


def in_cluster(name: str, page: Page) -> Page:
    """The same as Prometheus stores it for the targets of a cluster."""
    return {_with_cluster(series, name): value for series, value in page.items()}


def _with_cluster(series: str, name: str) -> str:
    """Return the series in a cluster; one that has a cluster, in that cluster's part of it."""
    metric, _, rest = series.partition("{")
    own = _CLUSTER.match(rest)
    if own:
        return f'{metric}{{cluster="{name}{own[1]}"{rest[own.end() :]}'
    return f'{metric}{{cluster="{name}"{"," if rest else "}"}{rest}'


def _liveness(
    t: int,
    labels: str,
    start: float | None,
    phase: str,
    phase_start: float | None,
    metadata: float | None,
    progress: float | None,
    step: float | None,
    moved: float | None,
    ranks: Mapping[int, float] | None,
    *,
    inferred: bool,
) -> dict[str, float | None]:
    """What the exporter derives from the record: the last sign of life, and the last motion."""
    beats = [min(t, each) for each in (metadata, progress, *(ranks or {}).values()) if each is not None]
    began = [each for each in (phase_start, start) if each is not None]
    life = max([*beats, *([] if start is None else [start])], default=None) if beats else None
    advanced = [] if step is None else [min(t, step)]
    changed = [*advanced, *([] if moved is None else [min(t, moved)])]
    known = phase_start is not None
    if inferred:
        basis = "output" if known else None
    elif phase != "train" and known:
        basis = "phase"
    elif step is not None:
        basis = "step"
    else:
        basis = "none" if known else None
    page = {f"training_life_timestamp_seconds{{{labels}}}": life}
    if basis:
        motion = f'training_motion_timestamp_seconds{{{labels},phase="{phase}",basis="{basis}"}}'
        page[motion] = max([*began, *changed])
        page[f"training_advance_timestamp_seconds{{{labels}}}"] = max([*began, *advanced])
    return page


def ranks_of(
    t: int, run_id: str, instance: str, host: str, ranks: Mapping[int, float], stale: float = 60
) -> dict[str, float | None]:
    """What an exporter shows of the ranks on one host."""
    labels = f'run_id="{run_id}",instance="{instance}",job="trainwarden-exporter"'
    beats = {rank: min(t, beat) for rank, beat in ranks.items()}
    page: dict[str, float | None] = {
        f'training_rank_heartbeat_timestamp_seconds{{{labels},rank="{rank}"}}': beat for rank, beat in beats.items()
    }
    silent = {rank: beat for rank, beat in beats.items() if t - beat > stale}
    for name, some, of in (("host_heartbeat", beats, max), ("silent_ranks", silent, min)):
        if some:
            numbers = ",".join(map(str, sorted(some)))
            page[f'training_{name}_timestamp_seconds{{{labels},host="{host}",ranks="{numbers}"}}'] = of(some.values())
    return page


def observed(instance: str) -> str:
    """The series that says when an exporter last read its records."""
    return (
        'trainwarden_collector_last_success_timestamp_seconds{collector="runs",'
        f'instance="{instance}",job="trainwarden-exporter"}}'
    )


def _last(t: int, time: float | None) -> float | None:
    return None if time is None else min(t, time)


def evaluate(promtool: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of files; what promtool prints of each is in `stdout`, in order.

    Collecting garbage takes a fifth of the time, unless it is to be done more rarely.
    """
    return subprocess.run(
        [promtool, "test", "rules", *paths],
        env={**os.environ, "GOGC": "400"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )


def document(
    tests: Sequence[tuple[str, Sequence[Scenario]]], rule_files: Sequence[str], evaluation_interval: int = STEP
) -> str:
    """Return tests, each with its name and scenarios, as a file for promtool, which anybody runs with the rules alone.

    The scenarios of a test are evaluated side by side, which takes little longer than one of them, each in a cluster of
    its own: 7, or 7a and 7b if it has several. One that is alone in its test keeps the clusters that it has.
    """
    read = "".join(f"  - ../{each}\n" for each in rule_files)
    written = "".join(_test(*each) for each in tests)
    return _HEAD.format(rule_files=read, seconds=evaluation_interval) + written


def raised(printed: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return labels and annotations of the alerts that promtool printed where a test expected none."""
    found = re.findall(r"Labels:\{(.*)\}\s+Annotations:\{(.*)\}", printed)
    return [(_pairs(labels), _pairs(texts)) for labels, texts in found]


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(value) for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text)}


_CLUSTER = re.compile(r'cluster="([a-z]*)"')
_HEAD = """\
# Made by `make docs` from the scenarios in tests/rules; change them there.
#
# promtool test rules rules/tests/*.yml
#
# What has a number is played beside the others of its test, in the cluster of that number.
rule_files:
{rule_files}evaluation_interval: {seconds}s
group_eval_order: [training_runs, training_runs_judged, training_runs_remembered, training_run_parts]
tests:
"""


def _test(name: str, scenarios: Sequence[Scenario]) -> str:
    lines = [f"  - name: {json.dumps(name)}", f"    interval: {STEP}s", "    input_series:"]
    if len(scenarios) == 1:
        lines += _input(scenarios[0].page, scenarios[0].seconds)
        lines.append("    promql_expr_test:")
        for second, expected in scenarios[0].alerts.items():
            lines += _question("", second, expected)
        return "\n".join(lines) + "\n"
    for number, scenario in enumerate(scenarios, 1):
        lines.append(f"      # {number}: {scenario.name}")
        lines += _input(_numbered(scenario.page, number), scenario.seconds)
    lines.append("    promql_expr_test:")
    for number, scenario in enumerate(scenarios, 1):
        lines.append(f"      # {number}: {scenario.name}")
        for second, expected in scenario.alerts.items():
            own = [(alert, {**each, "cluster": f"{number}{each.get('cluster', '')}"}) for alert, each in expected]
            lines += _question(f',cluster=~"{number}[a-z]?"', second, own)
    lines.append("      # Nothing fires outside of these clusters.")
    for second in sorted({second for each in scenarios for second in each.alerts}):
        lines += _question(',cluster!~"[0-9]+[a-z]?"', second, [])
    return "\n".join(lines) + "\n"


def _numbered(page: Callable[[int], Page], number: int) -> Callable[[int], Page]:
    return lambda t: in_cluster(str(number), page(t))


def _input(page: Callable[[int], Page], until: int) -> list[str]:
    return [
        f"      - {{series: {_quoted(series)}, values: {_quoted(values)}}}"
        for series, values in input_series(page, until)
    ]


def _question(where: str, second: int, expected: Sequence[Alert]) -> list[str]:
    asked = _quoted(f'ALERTS{{alertstate="firing",severity!="none"{where}}}')
    lines = [f"      - expr: {asked}", f"        eval_time: {second}s"]
    lines.append("        exp_samples:" if expected else "        exp_samples: []")
    for alert, labels in expected:
        every = {"alertname": alert, "alertstate": "firing", **labels}
        text = ",".join(f'{label}="{value}"' for label, value in every.items())
        lines.append(f"          - {{labels: {_quoted('ALERTS{' + text + '}')}, value: 1}}")
    return lines


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def input_series(page: Callable[[int], Page], until: int) -> Iterator[tuple[str, str]]:
    """Yield each series with its values. Like a real scrape: one that a target no longer shows ends at once."""
    pages = [page(t) for t in range(0, until + STEP, STEP)]
    for series in dict.fromkeys(series for each in pages for series in each):
        values = [each.get(series) for each in pages]
        shown: list[float | str] = [
            value if value is not None else "stale" if before is not None else "_"
            for before, value in zip([None, *values[:-1]], values, strict=True)
        ]
        yield series, " ".join(_abbreviated(shown))


def _abbreviated(values: Sequence[float | str]) -> Iterator[str]:
    """Yield promtool's notation: `0+5x40` is 0, 5, … 200."""
    at = 0
    while at < len(values):
        value, end = values[at], at + 1
        if isinstance(value, str):
            while value == "_" and end < len(values) and values[end] == "_":
                end += 1
            yield value if end == at + 1 else f"_x{end - at}"
            at = end
            continue
        follower = values[end] if end < len(values) else None
        step = follower - value if isinstance(follower, float | int) else 0.0
        while end < len(values) and values[end] == value + step * (end - at):
            end += 1
        if step and end == at + 2:  # two values are no row
            end -= 1
        if end == at + 1:
            yield f"{value:.15g}"
        else:
            yield f"{value:.15g}x{end - at - 1}" if not step else f"{value:.15g}{step:+.15g}x{end - at - 1}"
        at = end
