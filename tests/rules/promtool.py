"""Scenarios for promtool: what exporters show from second to second, and which alerts that must raise."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "rules/alerts").glob("*.yml"))
STEP = 5  # seconds between two scrapes, and between two evaluations
LIVE = math.inf

Page = dict[str, float]
Alert = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Scenario:
    """`page(t)` is all that is scraped at second t; `alerts` are all that fire at a second."""

    name: str
    page: Callable[[int], Page]
    alerts: Mapping[int, Sequence[Alert]]


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
    ranks: Mapping[int, float] | None = None,
    read: float = LIVE,
    failure: Mapping[str, str] | None = None,
    failed_at: float | None = None,
    stale: float = 60,
    stall: Mapping[str, float] | None = None,
) -> Page:
    """What an exporter shows of a run. A time is the last one of its kind: 60 follows the clock up to second 60.

    `moved` is the last change of the step, its last advance unless given.
    """
    labels = f'run_id="{run_id}",instance="{instance}",job="trainwarden-exporter"'
    page: dict[str, float | None] = {
        f'training_run_info{{{labels},attempt_key="slurm:{job_id}:{attempt}",job_id="{job_id}",scheduler="slurm",'
        f'host="{host}",policy="p{attempt}"}}': 1,
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
    for each in ("pending", "running", "succeeded", "failed", "cancelled"):
        page[f'training_run_state{{{labels},state="{each}"}}'] = float(each == state)
    for each in ("init", "train", "eval", "checkpoint", "idle"):
        page[f'training_phase{{{labels},phase="{each}"}}'] = float(each == phase)
    for each, seconds in (stall or {"init": 90, "train": 30, "eval": 120, "checkpoint": 120}).items():
        page[f'training_stall_threshold_seconds{{{labels},phase="{each}"}}'] = seconds
    for rank, beat in (ranks or {}).items():
        page[f'training_rank_heartbeat_timestamp_seconds{{{labels},rank="{rank}"}}'] = _last(t, beat)
    if failure is not None:
        verdict = ",".join(f'{key}="{value}"' for key, value in failure.items())
        page[f"training_failure_info{{{labels},{verdict}}}"] = 1
    return {series: value for series, value in page.items() if value is not None}


def observed(instance: str) -> str:
    """The series that says when an exporter last read its records."""
    return (
        'trainwarden_collector_last_success_timestamp_seconds{collector="runs",'
        f'instance="{instance}",job="trainwarden-exporter"}}'
    )


def _last(t: int, time: float | None) -> float | None:
    return None if time is None else min(t, time)


def behaviour(text: str) -> str:
    """Rules without their annotations: what they do, whatever they say."""
    rules: dict[str, Any] = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return yaml.safe_dump(rules, sort_keys=False)


def check(promtool: Path, folder: Path, rules: Sequence[str], scenarios: Sequence[Scenario]) -> str:
    """What promtool says against the rules; empty if every scenario comes out as promised."""
    names = sorted(
        {
            rule["alert"]
            for text in rules
            for group in yaml.safe_load(text)["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
    )
    files = []
    for number, text in enumerate(rules):
        path = folder / f"rules-{number}.yml"
        path.write_text(text, encoding="utf-8")
        files.append(path.name)
    tests = {
        "rule_files": files,
        "evaluation_interval": f"{STEP}s",
        "tests": [_test(scenario, names) for scenario in scenarios],
    }
    path = folder / "test.yml"  # JSON is YAML, and is written a hundred times as fast
    path.write_text(json.dumps(tests), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _test(scenario: Scenario, names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "interval": f"{STEP}s",
        "input_series": _input_series(scenario.page, max(scenario.alerts)),
        "alert_rule_test": [
            {
                "eval_time": f"{second}s",
                "alertname": name,
                "exp_alerts": [{"exp_labels": labels} for each, labels in expected if each == name],
            }
            for second, expected in scenario.alerts.items()
            for name in names
        ],
    }


def _input_series(page: Callable[[int], Page], until: int) -> list[dict[str, str]]:
    pages = [page(t) for t in range(0, until + STEP, STEP)]
    return [
        {"series": series, "values": " ".join(_values([each.get(series) for each in pages]))}
        for series in dict.fromkeys(series for each in pages for series in each)
    ]


def _values(values: Sequence[float | None]) -> list[str]:
    """Like a real scrape: a series that a target no longer shows ends at once."""
    return [
        f"{value:.15g}" if value is not None else "stale" if before is not None else "_"
        for before, value in zip([None, *values[:-1]], values, strict=True)
    ]
