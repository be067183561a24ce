"""What tests ask of all rule files: every rule with the file that it stands in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainwarden.rules.files import RuleFile, read_rule_files
from trainwarden_exporter.docs import METRICS

ROOT = Path(__file__).resolve().parents[2]
FILES: list[RuleFile] = read_rule_files(ROOT / "rules")
RULES: list[tuple[RuleFile, dict[str, Any]]] = [(file, rule) for file in FILES for rule in file.rules]
ALERTS = [rule for _, rule in RULES if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in ALERTS})
RECORDINGS = {rule["record"] for _, rule in RULES if "record" in rule}
_REMEDIATOR = set(
    re.findall(r"`(trainwarden_remediator_\w+)", (ROOT / "docs/remediator.md").read_text(encoding="utf-8"))
)
# Of Prometheus itself, of Alertmanager, and of slurmctld's own page.
_FOREIGN = re.compile(r"up|ALERTS|ALERTS_FOR_STATE|(?:scrape|prometheus|alertmanager|slurmctld)_\w+")
_HISTOGRAM = re.compile(r"_(?:bucket|count|sum)$")


def exists(name: str) -> bool:
    """A name, or a pattern, that the catalogue, a recording or another program has."""
    known = METRICS.keys() | RECORDINGS | _REMEDIATOR
    if name in known or _FOREIGN.fullmatch(name) or _HISTOGRAM.sub("", name) in known:
        return True
    return not re.fullmatch(r"[\w:]+", name) and any(re.fullmatch(name, each) for each in known)


def _number(rule: dict[str, Any]) -> int:
    return [each["alert"] for each in ALERTS[: ALERTS.index(rule)]].count(rule["alert"]) + 1


of_alerts = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{_number(rule)}")
of_names = pytest.mark.parametrize("name", NAMES)
