"""One file for monitoring and restarts, and what a user's own signal advises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cases import cases
from trainwarden.cli import main
from trainwarden.signals.pack import load_pack

if TYPE_CHECKING:
    from pathlib import Path

JOINT = """
defaults:
  - /monitoring: megatron_production
  - /restart: megatron_transient
  - _self_
inactivity_threshold_seconds: 77
log_signals: [{name: luck, pattern: out of luck, state: CrashState}]
policies:
  - mode: crash
    implementation: {class_name: AlwaysRestartPolicy, max_retries: 9}
"""


def test_a_file_for_monitoring_and_restarts_is_a_pack_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "joint.yaml"
    path.write_text(JOINT)
    pack = load_pack(path)
    assert pack.warnings == ()
    assert {"luck", "nccl_timeout"} <= {signal.name for signal in pack.signals}
    assert pack.inactivity_threshold_seconds == 77


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
