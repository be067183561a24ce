"""Which alerts fire from second to second: the rules of the bundle over an incident, in the engine of Prometheus."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.incidents.incidents import Incident
from tests.rules.promtool import RULES, STEP, Page, evaluate, input_series
from trainwarden.rules.files import groups_of

_FIRING = 'ALERTS{alertstate="firing"}'
_AT = re.compile(r"time: (\S+),\s+exp: nil\s+got: (.*)")
_SAMPLE = re.compile(r'\{((?:[a-z_A-Z]+="(?:[^"\\]|\\.)*"(?:, )?)*)\} \S+')
_LABEL = re.compile(r'([a-zA-Z_]+)=("(?:[^"\\]|\\.)*")')
_PARTS = re.compile(r"(\d+)(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}

Labels = Mapping[str, str]
Timeline = dict[int, list[Labels]]


def timeline(promtool: Path, folder: Path, page: Callable[[int], Page], seconds: int) -> Timeline:
    """Return the alerts that fire at each evaluation, by its second; seconds at which none fires are left out.

    promtool is asked to expect no alert at any time, so that it lists each that fires.

    Args:
        promtool: the program.
        folder: to write its input to.
        page: what is scraped at each second.
        seconds: how long.

    Raises:
        RuntimeError: promtool cannot evaluate the rules over these series.
    """
    test = {
        "interval": f"{STEP}s",
        "input_series": [{"series": name, "values": values} for name, values in input_series(page, seconds)],
        "promql_expr_test": [
            {"expr": _FIRING, "eval_time": f"{second}s", "exp_samples": []} for second in range(0, seconds + 1, STEP)
        ],
    }
    (folder / "rules.yml").write_text(rules_alone(), encoding="utf-8")
    path = folder / "incident.yml"  # JSON is YAML, and is written a hundred times as fast
    path.write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": f"{STEP}s", "tests": [test]}))
    done = evaluate(promtool, path)
    output = done.stdout
    if done.returncode != 0 and not _AT.search(output):
        raise RuntimeError(f"promtool cannot evaluate the incident: {output[:2000]}")
    return _parsed(output)


def assert_noticed(incident: Incident, found: Timeline) -> None:
    """Assert that an incident raised the alerts that it must, in time, and no other."""
    fired = {each["alertname"] for alerts in found.values() for each in alerts} - {"TrainWatchdog"}
    assert fired - incident.also - incident.within.keys() == set()
    after = {alert: _first(found, alert) - incident.begins for alert in incident.within}
    late = {alert: seconds for alert, seconds in after.items() if not 0 <= seconds <= incident.within[alert]}
    assert late == {}, f"seconds after the fault, of {dict(incident.within)}"
    restarts = [each for alerts in found.values() for each in alerts if each["remediate"] == "true"]
    assert bool(restarts) == incident.restarts
    assert {(each.get("cluster", ""), each["run_id"]) for each in restarts} <= incident.faulty


def _first(found: Timeline, alert: str) -> float:
    """Return when an alert fired first; infinite if never."""
    return min(
        (at for at, alerts in found.items() if any(each["alertname"] == alert for each in alerts)), default=math.inf
    )


@functools.cache
def rules_alone() -> str:
    """Return all rules without annotations, which take longer to make than the rules to evaluate."""
    groups = [group for path in RULES for group in groups_of(path.read_text(encoding="utf-8"))]
    for group in groups:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return json.dumps({"groups": groups})


def _parsed(output: str) -> Timeline:
    return {
        sum(int(number) * _SECONDS[unit] for number, unit in _PARTS.findall(at)): [
            {key: json.loads(text) for key, text in _LABEL.findall(sample)} for sample in _SAMPLE.findall(got)
        ]
        for at, got in _AT.findall(output)
    }
