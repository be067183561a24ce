"""Progress in the output of real runs is read as a person reads it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trainwarden.signals.progress import ProgressReader

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
FIELDS = (
    "step",
    "total_steps",
    "loss",
    "learning_rate",
    "grad_norm",
    "tokens_per_second",
    "samples_per_second",
    "epoch",
)

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")


def items(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


def wrong(item: dict[str, Any]) -> dict[str, tuple[object, object]]:
    reader = ProgressReader()
    reader.feed(item["log"].encode())
    reader.finish()
    stated = {field: item["fields"][field] for field in FIELDS if field in item["fields"]}
    if "iteration_time_ms" in item["fields"]:
        stated["step_time_seconds"] = item["fields"]["iteration_time_ms"] / 1000
    if "iteration_time_s" in item["fields"]:
        stated["step_time_seconds"] = item["fields"]["iteration_time_s"]
    found = {field: getattr(reader.progress(), field) for field in stated}
    return {
        field: (value, found[field])
        for field, value in stated.items()
        if found[field] is None or not math.isclose(found[field], value, rel_tol=1e-9)
    }


def test_every_fragment_of_a_progress_log_is_read_right() -> None:
    errors = {item["id"]: wrong(item) for item in items("progress_dev.jsonl")}
    assert {name: error for name, error in errors.items() if error} == {}


def test_steps_of_other_logs_are_those_that_a_person_sees() -> None:
    expected = {
        "ld0012": (6, 300),
        "ld0013": (1220, None),
        "ld0064": (3475, 4528),
        "ld0097": (100, 2285),
        "ld0159": (927, 4000),
        "ld0169": (17068, 159576),
        "ld0179": (26, 105),
        "ld0236": (4, 1000),
        "ld0123": (None, None),
        "ld0150": (None, None),
        "ld0241": (None, None),
    }
    found = {}
    for item in items("logs_dev.jsonl"):
        if item["id"] in expected:
            reader = ProgressReader()
            reader.feed(item["log"].encode())
            reader.finish()
            found[item["id"]] = (reader.progress().step, reader.progress().total_steps)
    assert found == expected
