"""The tables of docs/alerts.md and docs/rules.md, from the rule files, the runbooks and the values.

usage: python -m trainwarden.rules.document PAGE ...
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.rules.files import SEVERITIES, RuleFile, read_rule_files
from trainwarden.rules.values import read_values, table
from trainwarden.stack.bundle import bundle

if TYPE_CHECKING:
    from collections.abc import Sequence

_REMEDIATOR = {
    frozenset({"true"}): "acts by policy",
    frozenset({"true", "false"}): "acts by policy, where nothing contradicts",
    frozenset({"false"}): "never acts",
}


def with_tables(page: str, rules: Path) -> str:
    """Return `page` with each table that it has markers for, of the folder `rules`."""
    for name, text in (("alerts", _alerts(rules)), ("values", table(list(read_values(rules / "values.yml").values())))):
        page = _inserted(page, name, text)
    return page


def _inserted(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: made by `make docs` -->\n", f"<!-- end: {name} -->"
    head, begun, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if begun and not ended:
        raise ValueError(f"the page has no marker {end}")
    return f"{head}{begin}\n{text}\n{end}{tail}" if begun else page


def _alerts(rules: Path) -> str:
    return "\n".join(_section(file, rules / "runbooks") for file in read_rule_files(rules) if file.alerts)


def meaning(runbook: str) -> str:
    """Return the first sentence below the heading Meaning."""
    text = " ".join(runbook.partition("## Meaning\n")[2].partition("\n## ")[0].split())
    sentence = re.match(r".+?\.(?=\s|$)", text)
    return sentence[0].removesuffix(".") if sentence else text


def _section(file: RuleFile, runbooks: Path) -> str:
    alerts: dict[str, list[dict[str, Any]]] = {}
    for rule in file.alerts:
        alerts.setdefault(rule["alert"], []).append(rule)
    rows = "".join(_row(name, rules, runbooks) for name, rules in alerts.items())
    head = "| alert | severity | failure_mode | meaning | remediator |\n|---|---|---|---|---|\n"
    return f"### [{file.name}](../rules/{file.name})\n\n{head}{rows}"


def _row(name: str, rules: Sequence[dict[str, Any]], runbooks: Path) -> str:
    severities = {rule["labels"]["severity"] for rule in rules}
    modes = {rule["labels"].get("failure_mode", "that of the failure") for rule in rules}
    runbook = runbooks / f"{name}.md"
    text = meaning(runbook.read_text(encoding="utf-8")).replace("|", "\\|") if runbook.is_file() else ""
    cells = (
        f"[{name}](../rules/runbooks/{name}.md)",
        ", ".join(sorted(severities, key=SEVERITIES.index)),
        ", ".join(sorted(modes)),
        text,
        _REMEDIATOR[frozenset(rule["labels"]["remediate"] for rule in rules)],
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    for _page in map(Path, sys.argv[1:]):
        _page.write_text(with_tables(_page.read_text(encoding="utf-8"), bundle("rules")), encoding="utf-8")
