"""What Prometheus makes of the annotations that ask for a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.offenders import assert_none
from tests.rules.promtool import evaluate
from tests.rules.rule_files import ALERTS
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

DURATION = "run:training_condition_duration_seconds:current"
ATTEMPT = {f'{DURATION}{{run_id="r1"}}': 7620.0}
ALL = {f'{DURATION}{{attempts="all",run_id="r1"}}': 36000.0}
DURATIONS = [
    ({}, "2", ""),
    (ATTEMPT, "0", "2h 7m 0s"),
    (ATTEMPT, "", "2h 7m 0s"),
    (ATTEMPT, "2", "2h 7m 0s in attempt 2"),
    (
        ATTEMPT | ALL,
        "2",
        "2h 7m 0s in attempt 2, at least 10h 0m 0s since the first began",
    ),
    ({f'{DURATION}{{bound="least",run_id="r1"}}': 7620.0}, "", "at least 2h 7m 0s"),
]


def expanded(tools: Tools, folder: Path, text: str, shown: Mapping[str, float], attempt: str, expected: str) -> str:
    """Return what promtool has against `text` being expanded to `expected` for an alert of the run r1."""
    rule = {
        "alert": "TrainRunStalled",
        "expr": f'label_replace(stalled, "attempt", "{attempt}", "", "")',
        "annotations": {"text": text},
    }
    rules = {"groups": [{"name": "one", "rules": [rule]}]}
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    series = [{"series": name, "values": repr(value)} for name, value in shown.items()]
    labels = {"run_id": "r1", **({"attempt": attempt} if attempt else {})}
    test = {
        "interval": "1m",
        "input_series": [{"series": 'stalled{run_id="r1"}', "values": "1"}, *series],
        "alert_rule_test": [
            {
                "eval_time": "0m",
                "alertname": "TrainRunStalled",
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"text": expected}}],
            }
        ],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}), encoding="utf-8")
    done = evaluate(tools.promtool, folder / "tests.yml")
    return "" if done.returncode == 0 else done.stdout


def texts_of(annotation: str, *names: str) -> set[str]:
    return {rule["annotations"][annotation] for rule in ALERTS if rule["alert"] in names}


def test_the_duration_of_a_restarted_run_is_that_of_its_attempt_and_says_so(tools: Tools, tmp_path: Path) -> None:
    (text,) = texts_of("duration", "TrainRunFailed", "TrainRunTimedOut", "TrainRunStalled", "TrainRunSucceeded")
    assert_none(
        failed
        for shown, attempt, expected in DURATIONS
        if (failed := expanded(tools, tmp_path, text, shown, attempt, expected))
    )
