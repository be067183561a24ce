"""The exporter's documents say what the exporter does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from tests.offenders import assert_none
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.collectors.logs.problems import REASONS as LOG_REASONS
from trainwarden_exporter.collectors.runs.collector import OUTCOMES
from trainwarden_exporter.collectors.runs.problems import REASONS
from trainwarden_exporter.docs import METRICS, flags_page, metrics_page
from trainwarden_exporter.flags import build_parser

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "exporter.md").read_text(encoding="utf-8")
LOGS = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")


def test_the_list_of_metrics_is_what_the_catalogue_makes() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == metrics_page(), "run: python -m trainwarden_exporter.docs metrics > docs/metrics.md"


def test_the_list_of_flags_is_what_the_program_makes() -> None:
    written = (ROOT / "docs" / "exporter-flags.md").read_text(encoding="utf-8")
    assert written == flags_page(), "run: python -m trainwarden_exporter.docs flags > docs/exporter-flags.md"


def test_every_flag_of_the_exporter_that_a_page_names_exists() -> None:
    options = {option for action in build_parser().flags() for option in action.option_strings}
    flag = re.compile(r"--(?:no-)?(?:collector|path|expect|release|config|compat)\.[a-z][a-z0-9.-]*[a-z0-9]")
    assert_none(
        f"{page.name}: {name}"
        for page in sorted((ROOT / "docs").glob("*.md"))
        for name in sorted(set(flag.findall(page.read_text(encoding="utf-8"))) - options)
    )


def test_every_metric_has_a_source_and_an_example() -> None:
    assert [entry.name for entry in METRICS.values() if not (entry.source and entry.example)] == []


def test_every_example_uses_its_metric_and_is_a_query(tools: Tools, tmp_path: Path) -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^```promql\n(.*?)^```$", written, re.MULTILINE | re.DOTALL))
    queries = {
        name: query for names, query in re.findall(r"^# (.+)\n(.+)$", blocks, re.M) for name in names.split(", ")
    }
    assert queries.keys() == METRICS.keys(), "copied from the file as it is"
    assert [name for name, query in queries.items() if name not in query] == []
    rules = [{"record": f"example:{name}", "expr": query} for name, query in queries.items()]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": rules}]}))
    checked = subprocess.run([tools.promtool, "check", "rules", file], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_metric_that_the_guide_names_exists() -> None:
    named = set(re.findall(r"\b(?:training|trainwarden)_[a-z_]+", GUIDE + LOGS))
    named -= {"trainwarden_exporter", "training_log_latest", "training_log_"}
    assert named <= METRICS.keys()


def test_every_value_of_the_runs_collectors_own_labels_is_explained() -> None:
    assert_none(f"exporter.md: {word}" for word in (*REASONS, *OUTCOMES) if f"`{word}`" not in GUIDE)


def test_every_kind_of_problem_with_a_log_is_explained() -> None:
    assert_none(f"logs.md: {word}" for word in LOG_REASONS if not re.search(rf"^\| `{word}` \|", LOGS, re.MULTILINE))


def test_every_metric_that_the_contracts_name_for_the_exporter_exists_with_its_labels() -> None:
    text = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    section = text.partition("## Metrics")[2].partition("\n## ")[0]
    block = "\n".join(line for line in section.splitlines() if line.startswith("    "))
    assert "training_run_info" in block
    assert_none(
        f"contracts.md: {name}{{{labels}}}"
        for name, labels in re.findall(r"\b(training_\w+|trainwarden_\w+)(?:\{([^}]*)\})?", block)
        if name not in METRICS
        or not {label.partition("=")[0] for label in labels.split(",") if label} <= set(METRICS[name].label_names)
    )
