"""Every alert has a runbook and is on the page; the page is that of the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.offenders import assert_none
from tests.rules.rule_files import ALERTS, NAMES
from trainwarden.rules.document import meaning, with_tables
from trainwarden.rules.files import groups_of
from trainwarden_remediator.observe.nodes import EVIDENCE

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "rules/runbooks"
PAGE = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
SECTIONS = [
    "Meaning",
    "Impact",
    "What the remediator does",
    "Diagnosis",
    "Fix",
    "How to verify recovery",
    "False alarms",
]


# By the name of its alert.
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RUNBOOKS.glob("*.md"))}


def section(name: str, title: str) -> str:
    return TEXTS[name].partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert sorted(TEXTS) == NAMES


def test_a_runbook_has_every_section() -> None:
    def incomplete() -> Iterator[str]:
        for name, text in TEXTS.items():
            if not text.startswith(f"# {name}\n"):
                yield f"{name}: another title"
            if (found := re.findall(r"^## (.+)$", text, re.MULTILINE)) != SECTIONS:
                yield f"{name}: the sections are {found}"
            yield from (f"{name}: {each} is empty" for each in SECTIONS if not section(name, each).strip())
            if not re.search(r"^    \S", section(name, "Diagnosis"), re.MULTILINE):
                yield f"{name}: Diagnosis has no exact commands"
            if not 10 < len(meaning(text)) < 240:
                yield f"{name}: the first sentence of Meaning stands in the table of docs/alerts.md: {meaning(text)}"

    assert_none(incomplete())


def test_the_runbook_of_a_broken_node_names_what_a_restart_makes_of_it() -> None:
    flags = ("`exclude_nodes`", "`--slurm-drain-nodes`")
    naming = {name for name in TEXTS if all(flag in section(name, "What the remediator does") for flag in flags)}
    assert sorted(naming) == sorted(EVIDENCE)


@pytest.mark.parametrize("name", ["alerts", "rules"])
def test_the_tables_of_a_page_are_those_of_the_rules(name: str) -> None:
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert page.count("made by `make docs`") == 1
    assert with_tables(page, ROOT / "rules") == page, "make docs"


def test_the_seconds_on_the_page_are_those_of_the_configuration() -> None:
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    routes = yaml.safe_load((ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))["route"]
    (machine,) = [route for route in routes["routes"] if route["matchers"] == ['remediate="true"']]
    assert f"| scrape | {_seconds(prometheus['global']['scrape_interval'])} s |" in PAGE
    groups = groups_of((ROOT / "rules/alerts/runs.yml").read_text(encoding="utf-8"))
    (runs,) = [each for each in groups if each["name"] == "training_runs"]
    assert f"| evaluation | {_seconds(runs['interval'])} s |" in PAGE
    wait = f"{_seconds(machine['group_wait'])} s to the remediator, {_seconds(routes['group_wait'])} s to people"
    assert f"| group_wait | {wait} |" in PAGE
    assert {rule.get("for") for rule in ALERTS if rule["labels"]["remediate"] == "true"} == {None}
    parts = [
        int(second)
        for second in re.findall(r"^\| (?:exporter's|scrape|evaluation|group_wait).*?\| (\d+) s", PAGE, re.MULTILINE)
    ]
    assert f"| **all but the budget** | **{sum(parts)} s**" in PAGE


def _seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))
