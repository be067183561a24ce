"""Values that are proposed from a history can be built with, however small or large they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.answering import AnsweringService, Asked
from tests.cases import cases
from trainwarden.rules.build import Rules
from trainwarden.rules.command import main

NUMBERS = ("0.0000012", "3e-12", "1", "80", "123456789", "1e30")


@pytest.fixture(scope="module")
def proposals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of values where every query of a history gives one number, by that number."""
    given: list[str] = []

    def answer(asked: Asked) -> tuple[int, object]:
        result = [{"metric": {"run_id": "r1"}, "value": [asked.query["time"][0], given[-1]]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    prometheus = AnsweringService(answer)
    folder = tmp_path_factory.mktemp("proposals")
    files = {each: folder / f"{each}.yml" for each in NUMBERS}
    try:
        for number, file in files.items():
            given.append(number)
            assert main(["suggest", "--prometheus", prometheus.url, "--days", "1", "--out", str(file)]) == 0
    finally:
        prometheus.close()
    return files


@cases("number", NUMBERS)
def test_a_proposal_can_be_built_with(proposals: dict[str, Path], number: str) -> None:
    given = yaml.safe_load(proposals[number].read_text(encoding="utf-8"))["values"]
    assert Rules(proposals[number]).settings.values.keys() == given.keys()


def test_a_small_share_is_proposed_as_it_is(proposals: dict[str, Path]) -> None:
    assert "  efa.timeout_ratio: 0.0000018\n" in proposals["0.0000012"].read_text(encoding="utf-8")


def test_what_no_rule_can_hold_is_not_proposed(proposals: dict[str, Path]) -> None:
    text = proposals["3e-12"].read_text(encoding="utf-8")
    assert "# efa.timeout_ratio: no proposal, since what is usual is too near to zero, or too large, for a rule" in text


def test_no_limit_of_the_hardware_is_taken_from_a_history(proposals: dict[str, Path]) -> None:
    assert "gpu.temperature_celsius" not in proposals["80"].read_text(encoding="utf-8")
