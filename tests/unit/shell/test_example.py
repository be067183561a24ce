"""examples/shell, as a user would run it."""

from pathlib import Path

import pytest

from tests.unit.shell.calling import Shell

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/shell/train.sh"


def test_it_fails_at_the_step_asked_for_and_goes_on_from_there(shell: Shell) -> None:
    shell.environment.update(STEP_SECONDS="0", TRAINWARDEN_RUN_ID="r")
    failed = shell.run("bash", f"FAIL_AT=7 {EXAMPLE} 10")
    assert failed.returncode == 1, failed.stderr
    assert shell.read("_error")["error_type"] == "host_oom"
    done = shell.run("bash", f"{EXAMPLE} 10")
    assert (done.returncode, done.stderr) == (0, "")
    assert "going on from step 5" in done.stdout
    assert (shell.snapshot().state, shell.read("progress.json")["step"]) == ("succeeded", 10)
    assert shell.read("metadata.json")["attempts"][1]["resume_step"] == 6
