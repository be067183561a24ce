"""The texts of every alert as Prometheus makes them, from the shortest of the tests in rules/tests in which it fires.

usage: python -m tests.rules.rendered [NAME ...]

Prints them, to be read as they are on a person's screen.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rules.cases import firing, times
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


def rendered(bundle: Bundle, promtool: Path, moment: Moment, folder: Path) -> list[dict[str, str]]:
    """Return the annotations of all alerts of the moment's kind: promtool says what it has instead of none."""
    asked = {"eval_time": f"{moment.second:g}s", "alertname": moment.name, "exp_alerts": []}
    test = {**moment.test, "promql_expr_test": [], "alert_rule_test": [asked]}
    file = bundle.write_for_alert(moment.name, moment.stem, test, folder)
    found = raised(evaluate(promtool, file))
    return [texts for labels, texts in found if labels.items() >= dict(moment.labels).items()]


def main() -> int:
    """Print the texts of the alerts that are named, of all if none is."""
    bundle, promtool = Bundle(ROOT / "rules"), find_tools().promtool
    for moment in sorted(moments(bundle), key=lambda each: each.title):
        if not sys.argv[1:] or moment.name in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as folder:
                for texts in rendered(bundle, promtool, moment, Path(folder)):
                    print(f"# {moment.title}", *(f"{key}: {text}" for key, text in texts.items()), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
