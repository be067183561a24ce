"""docs/finetuning.md says what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from trainwarden_exporter.core.metric import Metric
from trainwarden_exporter.docs import METRICS
from trainwarden_exporter.finetuning import metrics as finetuning_metrics
from trainwarden_exporter.finetuning.metrics_exporter import MetricsExporter
from trainwarden_exporter.finetuning.metrics_server import build_parser
from trainwarden_exporter.finetuning.training_info import FINISHED, HISTORIES, KEYS, SECTIONS, SETTINGS

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "finetuning.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_name_is_in_the_table_with_its_type_and_stands_beside_one_that_exists() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `finetuning_")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(name, kind) for name, kind, *_ in rows] == [
        (f"`{each.name}`", each.kind) for each in vars(finetuning_metrics).values() if isinstance(each, Metric)
    ]
    native = {name for _, _, cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    assert len(native) > 10
    assert native <= METRICS.keys()


def test_every_key_that_is_accepted_is_named() -> None:
    keys = {key for names in KEYS.values() for key in names} | {*FINISHED, *HISTORIES, *SECTIONS, *SETTINGS}
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()


def test_every_call_that_is_described_exists_and_no_other() -> None:
    section = PAGE.partition("| call | sets |")[2].partition("\n\n")[0]
    described = {
        name for cell in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)\(", cell)
    }
    public = {
        name for name in dir(MetricsExporter) if not name.startswith("_") and callable(getattr(MetricsExporter, name))
    }
    assert described == public - {"collect", "describe", "add_to", "log_once", "end"}
    for text in blocks("python"):
        ast.parse(text)


def test_every_flag_of_the_server_that_is_named_exists() -> None:
    section = PAGE.partition("## Beside the training")[2].partition("\n## ")[0]
    named = set(re.findall(r"(--[a-z-]+)\b", section))
    existing = {flag for action in build_parser()._actions for flag in action.option_strings}
    assert {"--port", "--job-name", "--model-id", "--method", "--training-info"} <= named <= existing
