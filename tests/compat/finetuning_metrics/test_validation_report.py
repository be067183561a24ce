"""The command that checks a job, and the report that it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.compat.finetuning_metrics import models
from tests.compat.finetuning_metrics.jobs import TITLE, TRAINWARDEN, FinishedJob
from trainwarden import cli

pytestmark = pytest.mark.seed(TITLE, "Validation Report")

OPTIONS = [
    *("--training-info", "./output/training_info.json"),
    *("--model-path", "./output"),
    *("--checkpoint-path", "./checkpoints"),
    *("--profile-path", "./output/aim_profile.json"),
]
REPORT = """=== Fine-Tuning Validation Report ===

✓ PASS - training_loss
  Training loss: 0.5234
  Score: 0.5234

✓ PASS - checkpoint_integrity
  Checkpoint files are valid and complete

✓ PASS - aim_profile
  AIM profile is valid

Summary: 3/3 checks passed
"""


@pytest.mark.process
@pytest.mark.seed(TITLE, "Usage")
def test_command_prints_the_report_and_writes_it(job: FinishedJob) -> None:
    command = [*TRAINWARDEN, "validate-job", *OPTIONS, "--output", "validation_report.txt"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, REPORT, "")
    assert Path("validation_report.txt").read_text() == REPORT


def test_a_check_that_failed_is_named_with_its_reason(job: FinishedJob, capsys: pytest.CaptureFixture[str]) -> None:
    job.training_info.write_text(json.dumps({"loss": 11.5}))
    assert cli.main(["validate-job", *OPTIONS]) == 1
    told = capsys.readouterr().out
    assert "✗ FAIL - training_loss\n  Training loss: 11.5000 is out of range: expected 0 to 10\n" in told
    assert told.endswith("\nSummary: 2/3 checks passed\n")


def test_a_check_that_could_not_be_made_is_unknown(
    job: FinishedJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models.uninstall(monkeypatch)
    assert cli.main(["validate-job", *OPTIONS, "--prompt", "the sky is"]) == 3
    told = capsys.readouterr().out
    assert "? UNKNOWN - model_output\n  torch is not installed" in told
    assert told.endswith("\nSummary: 3/4 checks passed\n")


def test_a_profile_and_a_checkpoint_that_are_absent_fail_alone(
    job: FinishedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    job.profile.unlink()
    job.checkpoints.rename("elsewhere")
    assert cli.main(["validate-job", *OPTIONS]) == 1
    told = capsys.readouterr().out
    assert "✗ FAIL - checkpoint_integrity\n  There is no checkpoint: ./checkpoints\n" in told
    assert "✗ FAIL - aim_profile\n  AIM profile cannot be read: " in told
    assert told.endswith("\nSummary: 1/3 checks passed\n")


@pytest.mark.xfail(strict=True, raises=SystemExit, reason="a training info that is absent ends all of the checks")
def test_a_training_info_that_is_absent_fails_alone(job: FinishedJob, capsys: pytest.CaptureFixture[str]) -> None:
    job.training_info.unlink()
    assert cli.main(["validate-job", *OPTIONS]) == 1
    told = capsys.readouterr().out
    assert "✗ FAIL - training_loss\n" in told
    assert told.endswith("\nSummary: 2/3 checks passed\n")


@pytest.mark.xfail(strict=True, raises=SystemExit, reason="the folder of --output must be there")
def test_output_makes_the_folder_of_the_report(job: FinishedJob) -> None:
    assert cli.main(["validate-job", *OPTIONS, "--output", "reports/validation_report.txt"]) == 0
    assert Path("reports/validation_report.txt").read_text() == REPORT
