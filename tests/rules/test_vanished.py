"""What becomes of each alert when the series on which it fires are there no more, and where none ever were.

Made from the tests in rules/tests: of the shortest in which an alert fires, every series ends while it does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.rules.cases import firing, times
from tests.rules.mutations import Bundle
from tests.rules.promtool import evaluate
from tests.rules.rule_files import NAMES, ROOT
from trainwarden.duration import parse_duration
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

ALWAYS = "TrainWatchdog"
# When an alert is over at the latest, in seconds after its last sample: ages of what was last seen end before.
OVER = 20 * 60
# Of a remediator that is no target any more a person is told for as long as the rule remembers that it was one.
OVER_LATER = {"TrainRemediatorDown": 6 * 3600 + OVER}
# A node that dies takes its exporter with it, so it stays for a day, for a person: no machine acts on it.
FOR_PEOPLE = {"TrainRunTimedOut"}
ROW = re.compile(r"(_|[-+]?[\d.e]+(?:[-+][\d.e]+)??)x(\d+)")


def cut(values: str, samples: int) -> str:
    """Return the first samples of promtool's notation; then the series ends, unless it had ended before."""
    kept: list[str] = []
    for each in values.split():
        row = ROW.fullmatch(each)
        size = 1 if row is None else int(row[2]) + (row[1] != "_")
        if samples <= 0:
            break
        if row is not None and size > samples:
            kept.append(f"{row[1]}x{samples - (row[1] != '_')}")
        else:
            kept.append(each)
        samples -= size
    return " ".join([*kept, "stale"] if samples <= 0 else kept)


def is_up(name: str, moment: list[dict[str, str]]) -> bool:
    """Return whether the alert fires; of one that stays for a person, whether the machine acts on it."""
    return any(each["alertname"] == name and (name not in FOR_PEOPLE or each["remediate"] == "true") for each in moment)


def vanishing(name: str, test: dict[str, Any]) -> dict[str, Any]:
    """Return the test with all series ending when the alert fires first, and the alert over a while later."""
    at = next(time for time, moment in zip(times(test), firing(test), strict=True) if is_up(name, moment))
    samples = int(at // parse_duration(test["interval"])) + 1
    acted_on = ',remediate="true"' if name in FOR_PEOPLE else ""
    fired = f'group(ALERTS{{alertname="{name}",alertstate="firing"{acted_on}}})'
    return {
        "interval": test["interval"],
        "input_series": [{**each, "values": cut(str(each["values"]), samples)} for each in test["input_series"]],
        "promql_expr_test": [
            {"expr": fired, "eval_time": f"{at:g}s", "exp_samples": [{"labels": "{}", "value": 1}]},
            {"expr": fired, "eval_time": f"{at + OVER_LATER.get(name, OVER):g}s", "exp_samples": []},
        ],
    }


def test_a_series_is_cut() -> None:
    for values, samples, expected in (
        ("1x9", 4, "1x3 stale"),
        ("0+30x9", 4, "0+30x3 stale"),
        ("_x5 1x9", 7, "_x5 1x1 stale"),
        ("_x5 1x9", 3, "_x3 stale"),
        ("1 2 3", 2, "1 2 stale"),
        ("1x9", 1, "1x0 stale"),
        ("1x2 stale", 9, "1x2 stale"),
        ("0-1.5x3 7", 4, "0-1.5x3 stale"),
    ):
        assert cut(values, samples) == expected, (values, samples)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_an_alert_ends_when_its_series_do(tools: Tools, bundle: Bundle, tmp_path: Path) -> None:
    files = []
    for name in NAMES:
        if name != ALWAYS:
            stem, test = bundle.shortest(lambda each: any(is_up(name, moment) for moment in firing(each)))  # noqa: B023
            files.append(bundle.write_for_alerts([name], stem, vanishing(name, test), tmp_path / name))
    done = evaluate(tools.promtool, *files)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_without_any_series_nothing_fires_but_what_always_does(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "test.yml").write_text(
        f"""
rule_files: [{ROOT}/rules/alerts/*.yml, {ROOT}/rules/recording/*.yml]
evaluation_interval: 2m
tests:
  - input_series: [{{series: other, values: 1x60}}]
    interval: 2m
    promql_expr_test:
      - expr: ALERTS{{alertname!="{ALWAYS}"}}
        eval_time: 100m
        exp_samples: []
      - expr: '{{__name__=~".*:.*"}}'
        eval_time: 100m
        exp_samples: []
""",
        encoding="utf-8",
    )
    done = evaluate(tools.promtool, tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout
