"""Every alert says what a person needs, has a runbook, and is on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwarden.taxonomy import FAILURES

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "rules/runbooks"
PAGE = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((ROOT / "rules/alerts").glob("*.yml"))
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
NAMES = sorted({rule["alert"] for rule in RULES})
ANNOTATIONS = {
    "summary",
    "description",
    "action",
    "reason",
    "phase",
    "duration",
    "last_log",
    "instance",
    "s3",
    "s3_console",
    "runbook_url",
    "dashboard",
}
SECTIONS = [
    "Meaning",
    "Impact",
    "Diagnosis",
    "What the remediator does",
    "How to stop the remediator",
    "How to verify recovery",
    "False positives",
]
# What a person must be told to do, however it is worded.
ACTIONS = {
    "TrainRunFailed": ["hint", "training_log_latest.txt"],
    "TrainRunTimedOut": ["Log in to", "training_log_latest.txt", "nvidia-smi", "disk space"],
    "TrainRunStalled": ["py-spy dump", "rendezvous", "compile cache", "df, mount"],
    "TrainRunNeverStarted": ["queued", "trainwarden.run()"],
    "TrainRunDegraded": ["process alive", "write to the"],
    "TrainRunSucceeded": ["Nothing to do"],
    "TrainRunRestartExhausted": ["by hand", "/api/v1/incidents"],
}
SEVERITIES = {"TrainRunNeverStarted": "warning", "TrainRunDegraded": "warning", "TrainRunSucceeded": "info"}

of_rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['alert']}-{rule['labels']['remediate']}")
of_names = pytest.mark.parametrize("name", NAMES)


@of_rules
def test_a_rule_has_every_annotation_and_the_labels_that_route_it(rule: dict[str, Any]) -> None:
    assert set(rule["annotations"]) == ANNOTATIONS
    assert rule["labels"]["severity"] == SEVERITIES.get(rule["alert"], "critical")
    assert rule["labels"]["remediate"] in {"true", "false"}
    assert "failure_mode" in rule["labels"] or "failure_mode" in rule["expr"]


@of_rules
def test_labels_hold_no_template_and_the_summary_is_one_sentence(rule: dict[str, Any]) -> None:
    assert "{{" not in "".join(rule["labels"].values())
    assert re.fullmatch(r"[A-Z][^.{]+\.", rule["annotations"]["summary"])


@of_rules
def test_the_error_types_of_a_rule_are_those_of_the_taxonomy(rule: dict[str, Any]) -> None:
    stated = {key: rule["labels"][key] for key in ("error_type", "subsystem") if key in rule["labels"]}
    assert not stated or any(
        all(getattr(each, key) == text for key, text in stated.items()) for each in FAILURES.values()
    )


@of_rules
def test_no_text_reaches_a_query_unquoted(rule: dict[str, Any]) -> None:
    for text in rule["annotations"].values():
        assert not re.search(r'=~?"?%[sv]', text)
        for asked in re.findall(r"printf \"([^|]*?)\" \$labels", text):
            assert "%q" in asked


@of_rules
def test_a_message_states_what_to_do(rule: dict[str, Any]) -> None:
    for needle in ACTIONS[rule["alert"]]:
        assert needle in rule["annotations"]["action"]


@of_names
def test_the_runbook_has_every_section_and_is_linked(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    diagnosis = text.partition("## Diagnosis\n")[2].partition("\n## ")[0]
    assert re.search(r"^    \S", diagnosis, re.MULTILINE), "exact commands are missing"
    for rule in RULES:
        if rule["alert"] == name:
            assert rule["annotations"]["runbook_url"].endswith(f"/blob/main/rules/runbooks/{name}.md")


@of_names
def test_the_page_and_the_contracts_name_the_alert(name: str) -> None:
    assert f"[{name}](../rules/runbooks/{name}.md)" in PAGE
    assert f"| {name} |" in (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")


def test_there_is_no_runbook_without_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(NAMES)


def test_the_seconds_on_the_page_are_those_of_the_configuration() -> None:
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    routes = yaml.safe_load((ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))["route"]
    (machine,) = [route for route in routes["routes"] if route["receiver"] == "remediator"]
    assert f"| scrape | {_seconds(prometheus['global']['scrape_interval'])} s |" in PAGE
    assert f"| evaluation | {_seconds(prometheus['global']['evaluation_interval'])} s |" in PAGE
    wait = f"{_seconds(machine['group_wait'])} s to the remediator, {_seconds(routes['group_wait'])} s to people"
    assert f"| group_wait | {wait} |" in PAGE
    assert {rule.get("for") for rule in RULES if rule["labels"]["remediate"] == "true"} == {None}
    parts = [
        int(second)
        for second in re.findall(r"^\| (?:exporter's|scrape|evaluation|group_wait).*?\| (\d+) s", PAGE, re.MULTILINE)
    ]
    assert f"| **all but the budget** | **{sum(parts)} s**" in PAGE


def _seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))
