"""The exporter's documents say what the exporter does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwarden_exporter.catalog import METRICS, document
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.logs.problems import REASONS as LOG_REASONS
from trainwarden_exporter.runs.collector import OUTCOMES, REASONS

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "exporter.md").read_text(encoding="utf-8")
LOGS = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")


def test_the_list_of_metrics_is_what_the_catalogue_makes() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == document(), "run: python -m trainwarden_exporter.catalog > docs/metrics.md"


def test_every_flag_is_documented_and_every_documented_flag_exists() -> None:
    table = GUIDE.partition("## Flags")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(--[\w.-]+)`", table + LOGS.partition("\n## ")[0]))
    assert documented == {flag for action in build_parser()._actions for flag in action.option_strings} - {"-h"}


def test_the_documented_defaults_are_the_real_ones() -> None:
    rows = re.findall(r"^\| `(--[\w.-]+)`[^|]*\| `?([^|`]*)`? \|", GUIDE + LOGS, re.MULTILINE)
    documented = {flag: default.strip() for flag, default in rows}
    for flag in ("--web.listen-address", "--web.telemetry-path", "--collector.runs.scope", "--collector.runs.interval",
                 "--collector.runs.timeout", "--web.max-requests", "--collector.runs.max", "--log.level",
                 "--collector.logs.signals", "--collector.logs.first-read"):  # fmt: skip
        (action,) = (action for action in build_parser()._actions if flag in action.option_strings)
        assert documented[flag] == str(action.default)


def test_every_metric_that_the_guide_names_exists() -> None:
    named = set(re.findall(r"\b(?:training|trainwarden)_[a-z_]+", GUIDE + LOGS))
    named -= {"trainwarden_exporter", "training_log_latest", "training_log_"}
    assert named <= METRICS.keys()


@pytest.mark.parametrize("word", [*REASONS, *OUTCOMES])
def test_every_value_of_the_runs_collectors_own_labels_is_explained(word: str) -> None:
    assert f"`{word}`" in GUIDE


@pytest.mark.parametrize("word", LOG_REASONS)
def test_every_kind_of_problem_with_a_log_is_explained(word: str) -> None:
    assert re.search(rf"^\| `{word}` \|", LOGS, re.MULTILINE)


def test_every_metric_that_the_architecture_names_for_the_exporter_exists_with_its_labels() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("### Metrics")[2].partition("\n### ")[0]
    block = "\n".join(line for line in section.splitlines() if line.startswith("    "))
    assert "training_run_info" in block
    for name, labels in re.findall(r"\b(training_\w+|trainwarden_\w+)(?:\{([^}]*)\})?", block):
        assert name in METRICS
        stated = {label.partition("=")[0] for label in labels.split(",")} if labels else set()
        assert stated <= set(METRICS[name].label_names)
