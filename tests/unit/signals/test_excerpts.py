"""The cause named in excerpts of weak kinds: other libraries, accelerators, schedulers and clouds than common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cases import cases
from tests.unit.signals.verdicts import verdict_of
from trainwarden.failures.records import cause_in
from trainwarden.taxonomy import ERROR_TYPES

FILES = sorted((Path(__file__).parent / "excerpts").glob("*.yaml"))


def answers(path: Path) -> list[tuple[dict[str, Any], str]]:
    found = []
    for item in yaml.safe_load(path.read_text(encoding="utf-8")):
        verdict = verdict_of(item["log"])
        found.append((item, verdict.error_type if verdict else "none"))
    return found


@cases("path", FILES, ids=lambda path: path.stem)
def test_the_cause_is_right_for_97_in_100_failures_and_healthy_output_raises_no_alarm(path: Path) -> None:
    found = answers(path)
    assert {item["cause"] for item, _ in found} <= {*ERROR_TYPES, "none"}
    failures = [(item, answer) for item, answer in found if item["cause"] != "none"]
    wrong = [
        (item["log"], item["cause"], answer)
        for item, answer in failures
        if answer not in (item["cause"], *item.get("also", ()))
    ]
    assert [(item["log"], answer) for item, answer in found if item["cause"] == "none" and answer != "none"] == []
    assert len(wrong) <= len(failures) * 0.03, wrong


@cases("path", FILES, ids=lambda path: path.stem)
def test_the_library_and_a_scan_agree(path: Path) -> None:
    other = []
    for item, answer in answers(path):
        cause = cause_in(item["log"])
        kind = cause.error_type if cause else "none"
        if kind != answer:
            other.append((item["log"], answer, kind))
    assert other == []
