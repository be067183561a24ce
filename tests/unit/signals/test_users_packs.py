"""What a user's own signal advises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cases import cases
from trainwarden.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@cases(
    ("signal", "action"),
    [
        ("metadata: {error_type: oom}", "stop"),
        ("metadata: {error_type: communication}", "restart"),
        ("metadata: {error_type: license}, actions: [RestartAction]", "restart"),
        ("metadata: {error_type: license}", "stop"),
        ("metadata: {error_type: oom, action: wait}", "wait"),
    ],
)
def test_the_advice_for_a_users_signal_follows_its_error_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], signal: str, action: str
) -> None:
    pack, log = tmp_path / "mine.yaml", tmp_path / "train.log"
    pack.write_text(f"log_signals: [{{name: luck, pattern: out of luck, state: CrashState, {signal}}}]\n")
    log.write_text("we are out of luck\n")
    assert main(["scan", "--signals", str(pack), "--format", "json", str(log)]) == 1
    assert json.loads(capsys.readouterr().out)["action"] == action
