"""The files in rules/tests, which a team runs with promtool alone: they pass, and miss no alert."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules import scenarios
from tests.rules.cases import fires, firing, metrics_of, read_documents, read_tests, time_of
from tests.rules.mutations import Bundle
from tests.rules.promtool import evaluate
from tests.rules.rule_files import ALERTS, NAMES, ROOT, of_alerts, of_names
from trainwarden.stack.binaries import Tools

FOLDER = ROOT / "rules/tests"
FILES = sorted(FOLDER.glob("*.yml"))
# Each test's metrics, and what is to fire at each moment.
TESTS = [(metrics_of(test), firing(test)) for _, test in read_tests(FOLDER)]
# The dead-man's switch.
ALWAYS = {rule["alert"] for rule in ALERTS if rule["labels"]["severity"] == "none"}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle(ROOT / "rules")


# They take up to two minutes each; the rest of the files takes half a minute together.
SLOW = {
    "healthy",
    "gpus",
    "runs_remembered",
    "runs",
    "runs_lasting",
    "pace",
    "goodput",
    "remediator",
    "schedulers",
    "hangs",
    "checkpoints",
    "fabric",
    "identity",
    "monitoring",
}


@pytest.mark.tools
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "path", [pytest.param(each, id=each.stem, marks=[pytest.mark.nightly] if each.stem in SLOW else []) for each in FILES]
)
def test_its_alerts_fire_as_each_test_says(tools: Tools, bundle: Bundle, tmp_path: Path, path: Path) -> None:
    """With the rules that the file is about, which takes a fifth of the time of all."""
    check(tools, bundle.write_file(path.stem, tmp_path))


@pytest.mark.tools
@pytest.mark.timeout(900)
@pytest.mark.parametrize("subject", ["TrainRunFailed", "TrainRunStalled", "contradicted", "error type"])
def test_the_alerts_that_restart_runs_fire_as_their_scenarios_say(
    tools: Tools, bundle: Bundle, tmp_path: Path, subject: str
) -> None:
    """The scenarios of five minutes at most; the longer ones are played with all of their file."""
    check(tools, bundle.write_file("runs", tmp_path, subject, longest=300))


@pytest.mark.tools
def test_nothing_fires_in_the_first_hour_of_a_healthy_cluster(tools: Tools, tmp_path: Path) -> None:
    """The other five hours are played with all of its file."""
    document = read_documents(FOLDER)["healthy"]
    document["rule_files"] = [str(ROOT / "rules" / each / "*.yml") for each in ("alerts", "recording")]
    for test in document["tests"]:
        test["promql_expr_test"] = [each for each in test["promql_expr_test"] if time_of(each) <= 3600]
        assert test["promql_expr_test"]
    (tmp_path / "test.yml").write_text(json.dumps(document), encoding="utf-8")
    check(tools, tmp_path / "test.yml")


def check(tools: Tools, path: Path) -> None:
    done = evaluate(tools.promtool, path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.tools
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_with_all_rules_nothing_else_fires(tools: Tools, bundle: Bundle, tmp_path: Path, path: Path) -> None:
    check(tools, bundle.write_file_with_all(path.stem, tmp_path))


@pytest.mark.tools
def test_the_workflow_of_the_rules_has_a_prometheus_as_new_as_this_one(tools: Tools) -> None:
    """Under `make test-compat` this one is the newest that the tests use."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/rules.yml").read_text(encoding="utf-8"))
    (pinned,) = (job["strategy"]["matrix"]["prometheus"] for job in workflow["jobs"].values() if "strategy" in job)
    shown = subprocess.run([tools.promtool, "--version"], capture_output=True, text=True, check=True)
    ours = re.search(r"version (\d+)\.(\d+)", shown.stdout + shown.stderr)
    assert ours, shown.stdout + shown.stderr
    newest = max(tuple(map(int, re.findall(r"\d+", each)[:2])) for each in pinned)
    assert newest >= tuple(map(int, ours.groups()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_mapping_is_merged_into_another(path: Path) -> None:
    """promtool of Prometheus 3 refuses the whole file where a key of it is given anew."""
    assert not re.search(r"^\s*<<:", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_scenarios_of_runs_are_written_there() -> None:
    for name, text in scenarios.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "make docs"


def test_each_file_takes_the_rules_that_it_needs_and_each_test_has_a_name(bundle: Bundle) -> None:
    """No more, since each takes time wherever a team runs them; that nothing else fires is tested with all rules."""
    for stem, content in read_documents(FOLDER).items():
        needed = [f"../{name}" for name in bundle.rule_files(stem)]
        if len(needed) == len(bundle.files):
            needed = ["../alerts/*.yml", "../recording/*.yml"]
        assert sorted(content["rule_files"]) == needed, stem
        names = [test.get("name", "") for test in content["tests"]]
        assert all(names), stem
        assert len(set(names)) == len(names), stem


@of_names
def test_each_alert_fires_stays_silent_and_recovers(name: str) -> None:
    outcomes = [(metrics, [fires(name, moment) for moment in moments]) for metrics, moments in TESTS]
    raising = [metrics for metrics, outcome in outcomes if any(outcome)]
    assert raising, "it never fires"
    if name in ALWAYS:
        return
    judged = set().union(*raising)
    assert [metrics for metrics, outcome in outcomes if outcome and not any(outcome) and judged & metrics], (
        "no test in which it stays silent"
    )
    assert any((True, False) in itertools.combinations(outcome, 2) for _, outcome in outcomes), (
        "no test in which it fires and is over later"
    )


@of_alerts
def test_what_its_texts_take_from_labels_is_there_when_it_fires(rule: dict[str, Any]) -> None:
    # The link to a dashboard is the same for all, and names a run only where there is one.
    texts = [text for name, text in rule["annotations"].items() if name != "dashboard"]
    named = {label for text in texts for label in re.findall(r"\$labels\.(\w+)", text)}
    raised = [each for _, moments in TESTS for moment in moments for each in moment]
    seen = set().union(*(each for each in raised if each["alertname"] == rule["alert"]))
    assert named - {"cluster"} <= seen | set(rule["labels"])  # every rule keeps it, where Prometheus attaches one


def test_there_are_alerts() -> None:
    assert len(ALERTS) >= len(NAMES) > 5


def test_the_workflow_runs_them_with_exact_releases() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/rules.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["promtool"]
    releases = job["strategy"]["matrix"]["prometheus"]
    assert releases[0] == "v2.42.0"
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", release) for release in releases)
    commands = " ".join(step.get("run", "") for step in job["steps"])
    assert "promtool check rules /rules/recording/*.yml /rules/alerts/*.yml" in commands
    assert "promtool test rules /rules/tests/*.yml" in commands
