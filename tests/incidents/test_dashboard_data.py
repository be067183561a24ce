"""Every query of every dashboard returns data on a bad day, by the rules as they are in the engine of Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.incidents.bad_day import RESTARTED, bad_day
from tests.incidents.timeline import rules_alone
from tests.rules.dashboards import DASHBOARDS, VALUES, questions
from tests.rules.promtool import STEP, evaluate, input_series
from trainwarden.stack.binaries import Tools

# Longer than the rules let a run warm up.
SECONDS = 1080
# Scrapes come more rarely than in the other tests of incidents, by this factor.
RARER = 3
# Shortly after the restart, which an annotation marks, and at the end.
MOMENTS = (RESTARTED + 15, SECONDS)


@pytest.mark.tools
@pytest.mark.slow
def test_every_query_returns_data(tools: Tools, tmp_path: Path) -> None:
    asked = [(question.where, question.asked(VALUES)) for path in DASHBOARDS for question in questions(path)]
    expressions = list(dict.fromkeys(expr for _, expr in asked))
    test = {
        "interval": f"{RARER * STEP}s",
        "input_series": [
            {"series": name, "values": values}
            for name, values in input_series(lambda t: bad_day(RARER * t), SECONDS // RARER)
        ],
        # Expected is nothing, so that each expression with a result is listed, by its number.
        "promql_expr_test": [
            {"expr": f"({expr}) + {number} * 0", "eval_time": f"{moment}s", "exp_samples": []}
            for number, expr in enumerate(expressions)
            for moment in MOMENTS
        ],
    }
    (tmp_path / "rules.yml").write_text(rules_alone(), encoding="utf-8")
    path = tmp_path / "dashboards.yml"
    path.write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": f"{RARER * STEP}s", "tests": [test]})
    )
    done = evaluate(tools.promtool, path)
    output = done.stdout
    answered = {int(number) for number in re.findall(r"\+ (\d+) \* 0\", time:", output)}
    assert answered, output[:3000]
    empty = {where for where, expr in asked if expressions.index(expr) not in answered}
    assert sorted(empty) == [], f"without data: {sorted(empty)}"
