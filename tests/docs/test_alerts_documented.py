"""Every alert has a runbook and is on the page; the page is that of the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.rules.rule_files import ALERTS, NAMES, of_names
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


@of_names
def test_the_runbook_has_every_section(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies), "a section is empty"
    diagnosis = text.partition("## Diagnosis\n")[2].partition("\n## ")[0]
    assert re.search(r"^    \S", diagnosis, re.MULTILINE), "exact commands are missing"
    assert 10 < len(meaning(text)) < 240, "the first sentence of Meaning stands in the table of docs/alerts.md"


@of_names
def test_the_runbook_of_a_broken_node_names_what_a_restart_makes_of_it(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    done = text.partition("## What the remediator does\n")[2].partition("\n## ")[0]
    assert ("`exclude_nodes`" in done and "`--slurm-drain-nodes`" in done) is (name in EVIDENCE)


def test_there_is_no_runbook_without_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(NAMES)


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
