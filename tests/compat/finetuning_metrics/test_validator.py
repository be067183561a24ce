"""The class that checks a job from a script."""

from __future__ import annotations

import pytest

from tests.compat.finetuning_metrics.jobs import INFO, TITLE, FinishedJob
from trainwarden_exporter import FineTuningValidator, ValidationResult

pytestmark = pytest.mark.seed(TITLE, "Validator")


def test_run_all_checks_with_everything_there_is(job: FinishedJob) -> None:
    validator = FineTuningValidator()
    results = validator.run_all_checks(
        training_info=INFO,
        model_path="./output",
        checkpoint_path="./checkpoints",
        profile_path="./output/aim_profile.json",
    )
    assert [(each.check_name, each.passed, each.message, each.score) for each in results] == [
        ("training_loss", True, "Training loss: 0.5234", 0.5234),
        ("checkpoint_integrity", True, "Checkpoint files are valid and complete", None),
        ("aim_profile", True, "AIM profile is valid", None),
    ]
    assert all(isinstance(each, ValidationResult) for each in results)
    assert validator.validation_results == results


def test_run_all_checks_by_position_and_with_less(job: FinishedJob) -> None:
    validator = FineTuningValidator()
    results = validator.run_all_checks(INFO, None, str(job.checkpoint), str(job.profile))
    assert [each.passed for each in results] == [True, True, True]
    assert [each.check_name for each in validator.run_all_checks(training_info=INFO)] == ["training_loss"]
    assert [each.check_name for each in validator.validation_results] == ["training_loss"]


def test_results_of_single_checks_are_kept_for_the_report(job: FinishedJob) -> None:
    validator = FineTuningValidator(test_dataset_path="test.jsonl")
    validator.validate_training_loss(INFO, expected_range=(0.0, 2.0), decreasing=True)
    validator.validate_training_loss(2.5, (0.0, 2.0))
    validator.validate_aim_profile(str(job.profile))
    assert [each.passed for each in validator.validation_results] == [True, False, True]
    assert "Summary: 2/3 checks passed" in validator.generate_report()
