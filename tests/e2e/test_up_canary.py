"""The canary on one machine: the command that the documentation names breaks on schedule, and is healed both times."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.running import Up
from trainwarden_remediator.canary_job.canary_job import RUN_ID
from trainwarden_remediator.cli import main

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.nightly, pytest.mark.timeout(540)]


def test_it_is_healed_after_a_crash_and_after_a_hang(
    up: Callable[..., Up], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--driver=local", f"--runs-dir={tmp_path}", "canary"]) == 2
    named = shlex.split(capsys.readouterr().err.partition("on one machine: ")[2])
    separator = named.index("--")
    assert named[:4] == ["trainwarden", "up", "--run-id", RUN_ID]
    assert named[separator + 1] == "trainwarden-remediator"
    often = ["--every=20s", "--step-interval=0.3s"]
    command = [sys.executable, "-m", "trainwarden_remediator", *named[separator + 2 :], *often]
    job = up(*named[4:separator], "--stall-seconds", "15", "--", *command, run_id=RUN_ID)
    job.wait(lambda: len(re.findall(r"remediate DONE: ", job.text)) >= 2)
    assert job.text.count("breaks on schedule at step") >= 1
    assert job.text.count("hangs on schedule at step") >= 1
    attempts = json.loads((job.run / "metadata.json").read_text())["attempts"]
    assert len(attempts) >= 3
