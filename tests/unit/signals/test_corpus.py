"""The cause named in real excerpts of others, where a corpus of them lies beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwarden.signals.diagnosis import diagnose
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

CORPUS = Path(__file__).resolve().parents[4] / "shared/corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")


def items(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


def answers(name: str) -> list[tuple[dict[str, Any], str]]:
    scanner = Scanner(load_pack().signals)
    found = []
    for item in items(name):
        verdict = diagnose(scanner.feed(item["log"].encode()) + scanner.finish())
        found.append((item, verdict.error_type if verdict else "none"))
    return found


@needs_corpus
def test_the_cause_is_right_for_95_in_100_failures_and_healthy_logs_raise_no_alarm() -> None:
    wrong: list[tuple[str, str, str]] = []
    alarms: list[tuple[str, str, str]] = []
    failures = 0
    for item, answer in answers("logs_dev.jsonl"):
        right = answer in (item["error_type"], *item["also"])
        failures += item["error_type"] != "none"
        if not right:
            (alarms if item["error_type"] == "none" else wrong).append((item["id"], item["error_type"], answer))
    assert alarms == []
    assert len(wrong) <= failures * 0.05, wrong


@needs_corpus
def test_progress_is_no_failure() -> None:
    assert [(item["id"], answer) for item, answer in answers("progress_dev.jsonl") if answer != "none"] == []
