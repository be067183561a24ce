"""What tests ask of all rule files: every rule with the file that it stands in. Each file is read once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
_KNOWN = METRICS.keys() | RECORDINGS | _REMEDIATOR
# Of Prometheus itself, of Alertmanager, and of slurmctld's own page.
_FOREIGN = re.compile(r"up|ALERTS|ALERTS_FOR_STATE|(?:scrape|prometheus|alertmanager|slurmctld)_\w+")
_HISTOGRAM = re.compile(r"_(?:bucket|count|sum)$")


def exists(name: str) -> bool:
    """A name, or a pattern, that the catalogue, a recording or another program has."""
    if name in _KNOWN or _FOREIGN.fullmatch(name) or _HISTOGRAM.sub("", name) in _KNOWN:
        return True
    return not re.fullmatch(r"[\w:]+", name) and any(re.fullmatch(name, each) for each in _KNOWN)


def _titled() -> Iterator[tuple[str, dict[str, Any]]]:
    seen: Counter[str] = Counter()
    for file, rule in RULES:
        title = f"{file.name}: {rule.get('alert', rule.get('record'))}"
        seen[title] += 1
        yield (title if seen[title] == 1 else f"{title} ({seen[title]})"), rule


# Each rule by its place: `alerts/runs.yml: TrainRunStalled (2)` is the second of that name in its file.
TITLED = list(_titled())
TITLED_ALERTS = [(title, rule) for title, rule in TITLED if "alert" in rule]
