"""docs/exec.md and docs/shell.md tell of every option, and of no other."""

import re
from pathlib import Path

from trainwarden.exec.request import parser
from trainwarden.record.folder import PHASES
from trainwarden.shell import complete, fail, heartbeat

ROOT = Path(__file__).resolve().parents[3]


def test_every_option_of_exec_is_described_and_no_other() -> None:
    text = (ROOT / "docs/exec.md").read_text(encoding="utf-8")
    existing = {name for action in parser()._actions for name in action.option_strings if name.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE)) == existing - {"--help"}


def test_every_option_of_a_shell_command_is_described() -> None:
    text = (ROOT / "docs/shell.md").read_text(encoding="utf-8")
    usages = heartbeat.HEARTBEAT_USAGE + heartbeat.PHASE_USAGE + fail.USAGE + complete.USAGE
    assert {name for name in re.findall(r"--[a-z-]+", usages) if f"`{name}" not in text} == set()
    assert [name for name in PHASES if name not in text] == []
