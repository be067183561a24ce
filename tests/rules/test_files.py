"""The files in rules/tests, which a team runs with promtool alone: they pass, and miss no alert."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.offenders import assert_none
from tests.rules import scenarios
from tests.rules.cases import fires, firing, metrics_of, read_documents, read_tests, time_of
from tests.rules.mutations import Bundle
from tests.rules.promtool import evaluate
from tests.rules.rule_files import ALERTS, NAMES, ROOT, TITLED_ALERTS
from trainwarden.stack.binaries import Tools

FOLDER = ROOT / "rules/tests"
FILES = sorted(FOLDER.glob("*.yml"))
FIRST_HOUR_SECONDS = 3600
# They take most of the time: of these `make test` plays the tests that end within so many seconds.
LONG = {
    "checkpoints",
    "checkpoints_lasting",
    "fabric",
    "goodput",
    "gpus",
    "hangs",
    "healthy",
    "identity",
    "identity_lasting",
    "monitoring",
    "pace",
    "remediator",
    "remediator_lasting",
    "runs",
    "runs_lasting",
    "runs_remembered",
    "schedulers",
}
SHORT_SECONDS = 1200
# The file of the alerts that restart runs; the subjects of which its scenarios of five minutes are played.
RUNS, RESTARTING, RESTARTING_SECONDS = "runs", ("TrainRunFailed", "TrainRunStalled", "contradicted", "error type"), 300


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_the_alerts_fire_as_each_short_test_says(tools: Tools, bundle: Bundle, tmp_path: Path) -> None:
    """Each file with the rules that it is about, which takes a fifth of the time of all."""
    files = []
    for path in FILES:
        longest = SHORT_SECONDS if path.stem in LONG else math.inf
        if path.stem != RUNS and bundle.has_tests(path.stem, longest=longest):
            files.append(bundle.write_file(path.stem, tmp_path / path.stem, longest=longest))
    check(tools, *files)


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_the_alerts_that_restart_runs_fire_as_their_scenarios_say(tools: Tools, bundle: Bundle, tmp_path: Path) -> None:
    check(
        tools,
        *(bundle.write_file(RUNS, tmp_path / each, each, longest=RESTARTING_SECONDS) for each in RESTARTING),
    )


@pytest.mark.nightly
@pytest.mark.tools
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stem", sorted(LONG))
def test_the_alerts_fire_as_each_test_of_a_long_file_says(
    tools: Tools, bundle: Bundle, tmp_path: Path, stem: str
) -> None:
    check(tools, bundle.write_file(stem, tmp_path / stem))


@pytest.mark.tools
def test_nothing_fires_in_the_first_hour_of_a_healthy_cluster(tools: Tools, tmp_path: Path) -> None:
    """The other five hours are played with all of its file."""
    whole = read_documents(FOLDER)["healthy"]
    asked = [
        [each for each in test["promql_expr_test"] if time_of(each) <= FIRST_HOUR_SECONDS] for test in whole["tests"]
    ]
    assert all(asked)
    document = {
        **whole,
        "rule_files": [str(ROOT / "rules" / each / "*.yml") for each in ("alerts", "recording")],
        "tests": [{**test, "promql_expr_test": first} for test, first in zip(whole["tests"], asked, strict=True)],
    }
    (tmp_path / "test.yml").write_text(json.dumps(document), encoding="utf-8")
    check(tools, tmp_path / "test.yml")


def check(tools: Tools, *paths: Path) -> None:
    """Have one promtool play all files."""
    done = evaluate(tools.promtool, *paths)
    failed = [part for part in done.stdout.split("Unit Testing:") if part.strip() and "SUCCESS" not in part]
    assert done.returncode == 0, "".join(failed)


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


def test_no_mapping_is_merged_into_another() -> None:
    """promtool of Prometheus 3 refuses the whole file where a key of it is given anew."""
    assert_none(
        f"{path.name}: {line}"
        for path in FILES
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith("<<:")
    )


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


def judged() -> list[tuple[set[str], list[list[dict[str, str]]]]]:
    """Return of each test its metrics, and what is to fire at each moment."""
    return [(metrics_of(test), firing(test)) for _, test in read_tests(FOLDER)]


def test_each_alert_fires_stays_silent_and_recovers() -> None:
    always = {rule["alert"] for rule in ALERTS if rule["labels"]["severity"] == "none"}  # the dead-man's switch
    tests = judged()

    def unproven() -> Iterator[str]:
        for name in NAMES:
            outcomes = [(metrics, [fires(name, moment) for moment in moments]) for metrics, moments in tests]
            raising = [metrics for metrics, outcome in outcomes if any(outcome)]
            if not raising:
                yield f"{name}: it never fires"
            elif name not in always:
                read = set().union(*raising)
                if not [metrics for metrics, outcome in outcomes if outcome and not any(outcome) and read & metrics]:
                    yield f"{name}: no test in which it stays silent"
                if not any((True, False) in itertools.combinations(outcome, 2) for _, outcome in outcomes):
                    yield f"{name}: no test in which it fires and is over later"

    assert_none(unproven())


def test_what_its_texts_take_from_labels_is_there_when_it_fires() -> None:
    seen: dict[str, set[str]] = {}
    for _, moments in judged():
        for each in itertools.chain.from_iterable(moments):
            seen.setdefault(each["alertname"], set()).update(each)
    # The link to a dashboard is the same for all, and names a run only where there is one; every rule keeps the
    # cluster, where Prometheus attaches one.
    assert_none(
        f"{title}: {key} takes {label}"
        for title, rule in TITLED_ALERTS
        for key, text in rule["annotations"].items()
        if key != "dashboard"
        for label in sorted(set(re.findall(r"\$labels\.(\w+)", text)))
        if label not in {"cluster", *seen.get(rule["alert"], ()), *rule["labels"]}
    )


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
