"""What tests ask of all rule files: every rule with the file that it stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwarden.rules.files import RuleFile, read_rule_files

ROOT = Path(__file__).resolve().parents[2]
FILES: list[RuleFile] = read_rule_files(ROOT / "rules")
RULES: list[tuple[RuleFile, dict[str, Any]]] = [(file, rule) for file in FILES for rule in file.rules]
ALERTS = [rule for _, rule in RULES if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in ALERTS})
RECORDINGS = {rule["record"] for _, rule in RULES if "record" in rule}


def _number(rule: dict[str, Any]) -> int:
    return [each["alert"] for each in ALERTS[: ALERTS.index(rule)]].count(rule["alert"]) + 1


of_alerts = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{_number(rule)}")
of_names = pytest.mark.parametrize("name", NAMES)
