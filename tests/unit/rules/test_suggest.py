"""Values that are proposed from a history can be built with, however small or large they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.answering import AnsweringService, Asked
from trainwarden.rules.build import Rules
from trainwarden.rules.command import main


@pytest.fixture
def proposals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The file of values where every query of a history gives one number."""

    def answer(asked: Asked) -> tuple[int, object]:
        result = [{"metric": {"run_id": "r1"}, "value": [asked.query["time"][0], request.param]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    prometheus = AnsweringService(answer)
    file = tmp_path / "mine.yml"
    try:
        assert main(["suggest", "--prometheus", prometheus.url, "--days", "1", "--out", str(file)]) == 0
        yield file
    finally:
        prometheus.close()


@pytest.mark.parametrize("proposals", ["0.0000012", "3e-12", "1", "123456789", "1e30"], indirect=True)
def test_a_proposal_can_be_built_with(proposals: Path) -> None:
    given = yaml.safe_load(proposals.read_text(encoding="utf-8"))["values"]
    assert Rules(proposals).settings.values.keys() == given.keys()


@pytest.mark.parametrize("proposals", ["0.0000012"], indirect=True)
def test_a_small_share_is_proposed_as_it_is(proposals: Path) -> None:
    assert "  efa.timeout_ratio: 0.0000018\n" in proposals.read_text(encoding="utf-8")


@pytest.mark.parametrize("proposals", ["3e-12"], indirect=True)
def test_what_no_rule_can_hold_is_not_proposed(proposals: Path) -> None:
    text = proposals.read_text(encoding="utf-8")
    assert "# efa.timeout_ratio: no proposal, since what is usual is too near to zero, or too large, for a rule" in text


@pytest.mark.parametrize("proposals", ["80"], indirect=True)
def test_no_limit_of_the_hardware_is_taken_from_a_history(proposals: Path) -> None:
    assert "gpu.temperature_celsius" not in proposals.read_text(encoding="utf-8")
