"""The texts of every alert as Prometheus makes them, from the shortest of the tests in rules/tests in which it fires.

usage: python -m tests.rules.rendered [NAME ...]

Prints them, to be read as they are on a person's screen.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rules.cases import firing, time_of, times
from tests.rules.mutations import Bundle
from tests.rules.promtool import evaluate, raised
from tests.rules.rule_files import ALERTS, NAMES, ROOT
from trainwarden.stack.binaries import find_tools

ALWAYS = "TrainWatchdog"
# What each name has more than one text for.
_STATED = ("severity", "failure_mode", "remediate")


@dataclass(frozen=True)
class Moment:
    """When an alert fires in a test, with the labels by which its texts differ."""

    name: str
    labels: tuple[tuple[str, str], ...]
    stem: str
    test: dict[str, Any]
    second: float

    @property
    def title(self) -> str:
        return " ".join([self.name, *(f"{label}={value}" for label, value in self.labels)])


def _branches(name: str) -> list[str]:
    """Return the labels that the texts of an alert compare with something."""
    texts = [text for rule in ALERTS if rule["alert"] == name for text in rule["annotations"].values()]
    return sorted({label for text in texts for label in re.findall(r"\beq \$labels\.(\w+)", text)})


def moments(bundle: Bundle) -> Iterator[Moment]:
    """Yield for each alert one moment of each kind, of the shortest test that has it."""
    compared = {name: [*_STATED, *_branches(name)] for name in NAMES}
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for stem, test in bundle.from_shortest():
        for second, alerts in zip(times(test), firing(test), strict=True):
            for alert in alerts:
                name = alert["alertname"]
                kind = tuple((label, alert[label]) for label in compared[name] if alert.get(label))
                if name != ALWAYS and (name, kind) not in seen:
                    seen.add((name, kind))
                    yield Moment(name, kind, stem, test, second)


def rendered(bundle: Bundle, promtool: Path, wanted: Sequence[Moment], folder: Path) -> list[list[dict[str, str]]]:
    """Return for each moment the annotations of all alerts of its kind: promtool says what it has instead of none.

    One process evaluates all, and each test once for all of its moments.
    """
    cases: dict[tuple[str, str], list[Moment]] = {}
    for moment in wanted:
        cases.setdefault((moment.stem, json.dumps(moment.test, sort_keys=True)), []).append(moment)
    files = []
    for number, ((stem, text), some) in enumerate(cases.items()):
        asked = [{"eval_time": f"{each.second:g}s", "alertname": each.name, "exp_alerts": []} for each in some]
        test = {**json.loads(text), "name": f"case {number}", "promql_expr_test": [], "alert_rule_test": asked}
        files.append(bundle.write_for_alerts({each.name for each in some}, stem, test, folder / str(number)))
    found = _by_case(evaluate(promtool, *files).stdout)
    numbers = {id(moment): number for number, some in enumerate(cases.values()) for moment in some}
    return [
        [
            texts
            for labels, texts in found.get((numbers[id(moment)], moment.name, moment.second), [])
            if labels.items() >= dict(moment.labels).items()
        ]
        for moment in wanted
    ]


def _by_case(printed: str) -> dict[tuple[int, str, float], list[tuple[dict[str, str], dict[str, str]]]]:
    """Return labels and annotations by the number of the case, the alert and the second that were asked about."""
    _, *parts = re.split(r"\bname: case (\d+),\s+alertname: (\w+), time: (\w+),", printed)
    return {
        (int(number), name, time_of({"eval_time": time})): raised(part)
        for number, name, time, part in zip(*(parts[start::4] for start in range(4)), strict=True)
    }


def main() -> int:
    """Print the texts of the alerts that are named, of all if none is."""
    bundle, promtool = Bundle(ROOT / "rules"), find_tools().promtool
    named = [each for each in moments(bundle) if not sys.argv[1:] or each.name in sys.argv[1:]]
    named.sort(key=lambda each: each.title)
    with tempfile.TemporaryDirectory() as folder:
        for moment, found in zip(named, rendered(bundle, promtool, named, Path(folder)), strict=True):
            for texts in found:
                print(f"# {moment.title}", *(f"{key}: {text}" for key, text in texts.items()), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
