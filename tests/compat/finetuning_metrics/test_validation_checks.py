"""The four checks: what passes each, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.compat.finetuning_metrics import models
from tests.compat.finetuning_metrics.jobs import INFO, PROFILE, TITLE, FinishedJob
from trainwarden_exporter import FineTuningValidator

pytestmark = pytest.mark.seed(TITLE, "Validation Checks")


def history(*losses: float) -> dict[str, Any]:
    return {"log_history": [{"loss": loss} for loss in losses]}


@cases(
    ("info", "passes"),
    [
        (0.5234, True),
        (0.0, True),
        (2.0, True),
        (2.1, False),
        (-0.1, False),
        (float("nan"), False),
        (float("inf"), False),
        (INFO, True),
        ({}, False),
        ({"loss": "low"}, False),
    ],
)
def test_training_loss_is_within_the_expected_range(info: Any, passes: bool) -> None:
    found = FineTuningValidator().validate_training_loss(info, expected_range=(0.0, 2.0), decreasing=False)
    assert (found.check_name, found.passed) == ("training_loss", passes)


@cases(
    ("info", "passes"),
    [
        (history(2.0, 1.0, 0.5), True),
        (history(3.0, 2.9, 3.1, 2.0, 2.4, 1.5, 1.9, 1.1, 1.3, 1.2), True),
        (history(*[1.0] * 5, *[1.5] * 5), False),
        (history(1.0, float("nan"), 1.0), False),
    ],
)
def test_training_loss_is_decreasing(info: dict[str, Any], passes: bool) -> None:
    assert FineTuningValidator().validate_training_loss(info, None, True).passed is passes


def test_training_loss_may_rise_where_it_need_not_fall() -> None:
    rising = history(*[1.0] * 5, *[1.5] * 5)
    assert FineTuningValidator().validate_training_loss(rising, decreasing=False).passed is True


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a single loss passes as one that has fallen: nothing shows that it did"
)
def test_training_loss_without_a_history_is_not_known_to_have_fallen() -> None:
    found = FineTuningValidator().validate_training_loss(0.5234, expected_range=(0.0, 2.0), decreasing=True)
    assert found.passed is None


def test_model_generates_outputs_with_the_expected_keywords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models.install(monkeypatch)
    for name in ("blue", "silent"):
        (tmp_path / name).mkdir()
    validator = FineTuningValidator()
    told = [
        validator.validate_model_output(str(tmp_path / "blue"), ["the sky is"]),
        validator.validate_model_output(str(tmp_path / "blue"), ["the sky is", "so is"], ["Blue"]),
        validator.validate_model_output(
            model_path=str(tmp_path / "blue"), test_prompts=["the sky is"], expected_keywords=["blue", "red"]
        ),
        validator.validate_model_output(str(tmp_path / "silent"), ["the sky is"]),
        validator.validate_model_output(str(tmp_path / "absent"), ["the sky is"]),
    ]
    assert [(each.passed, each.score) for each in told] == [
        (True, None), (True, 1.0), (False, 0.5), (False, None), (False, None),
    ]  # fmt: skip
    assert {each.check_name for each in told} == {"model_output"}
    assert told[2].message == "Outputs do not contain: red"
    assert told[4].message == f"There is no model: {tmp_path / 'absent'}"


def test_model_output_is_checked_with_the_others_where_there_are_prompts(
    job: FinishedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.install(monkeypatch)
    Path("test.jsonl").write_text(json.dumps({"instruction": "the sky is", "output": "blue"}) + "\n")
    results = FineTuningValidator(test_dataset_path="test.jsonl").run_all_checks(INFO, "./output", "./checkpoints")
    assert [each.check_name for each in results] == ["training_loss", "model_output", "checkpoint_integrity"]
    assert [each.passed for each in results] == [True, True, True]


def test_model_output_without_transformers_is_neither_passed_nor_failed(
    job: FinishedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.uninstall(monkeypatch)
    found = FineTuningValidator().validate_model_output("./output", ["the sky is"])
    assert (found.passed, "is not installed" in found.message) == (None, True)


def cut(job: FinishedJob) -> None:
    weights = job.checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])


def half_written(job: FinishedJob) -> None:
    (job.checkpoint / "config.json").write_text('{"model_type": ')


def without_weights(job: FinishedJob) -> None:
    (job.checkpoint / "model.safetensors").unlink()


def removed(job: FinishedJob) -> None:
    job.checkpoints.rename("elsewhere")


@cases(
    ("damage", "passed", "message"),
    [
        (cut, False, "Checkpoint is not complete"),
        (half_written, False, "JSON files cannot be read: config.json"),
        (without_weights, None, "Completeness cannot be proven"),
        (removed, False, "There is no checkpoint"),
    ],
)
def test_checkpoint_files_are_complete_and_json_can_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[FinishedJob], None],
    passed: bool | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    job = FinishedJob(tmp_path)
    for path in (job.checkpoint, job.checkpoints):
        assert FineTuningValidator().validate_checkpoint_integrity(str(path)).passed is True
    damage(job)
    found = FineTuningValidator().validate_checkpoint_integrity(str(job.checkpoint))
    assert (found.check_name, found.passed) == ("checkpoint_integrity", passed)
    assert message in found.message


def test_checkpoint_of_two_files_of_the_module_is_one(tmp_path: Path) -> None:
    for step in (9, 10):
        folder = tmp_path / f"checkpoint_{step}"
        folder.mkdir()
        (folder / "checkpoint_info.json").write_text(json.dumps({"step": step}))
        (folder / "training_state.json").write_text(json.dumps({"epoch": 1}))
    for path in (tmp_path, folder):
        found = FineTuningValidator().validate_checkpoint_integrity(str(path))
        assert (found.passed, found.message) == (True, "Checkpoint files are valid and complete")
        assert found.details["path"] == str(folder), "the newest"
    (folder / "training_state.json").write_text("{")
    assert FineTuningValidator().validate_checkpoint_integrity(str(tmp_path)).passed is False
    (folder / "training_state.json").unlink()
    assert FineTuningValidator().validate_checkpoint_integrity(str(folder)).passed is not True


_OF_A_LORA = {"model_id": "q/w-lora", "base_model_id": "q/w", "fine_tuning_method": "lora", "memory_gb": 20.0}


@cases(
    ("profile", "message"),
    [
        (PROFILE, "AIM profile is valid"),
        (_OF_A_LORA, "AIM profile is valid"),
        ({**_OF_A_LORA, "memory_gb": 0}, "memory_gb is '0', expected a number above 0"),
        ({**PROFILE, "memory_requirement_gb": -1}, "memory_requirement_gb is '-1', expected a number above 0"),
        ({**PROFILE, "gpu_sharing": {"memory_limit_gb": 0}}, "gpu_sharing.memory_limit_gb is '0'"),
        ({"memory_requirement_gb": 20}, "model_id is missing"),
        ({"model_id": "m"}, "memory_requirement_gb, memory_gb, resource_requirements or metadata is missing"),
        ([1], "AIM profile"),
        ("{", "AIM profile cannot be read"),
    ],
)
def test_aim_profile_has_its_format_its_fields_and_positive_memory(tmp_path: Path, profile: Any, message: str) -> None:
    path = tmp_path / "aim_profile.json"
    path.write_text(profile if isinstance(profile, str) else json.dumps(profile))
    found = FineTuningValidator().validate_aim_profile(str(path))
    assert (found.check_name, found.passed) == ("aim_profile", message == "AIM profile is valid")
    assert message in found.message


def test_aim_profile_that_is_absent_fails(tmp_path: Path) -> None:
    assert FineTuningValidator().validate_aim_profile(str(tmp_path / "aim_profile.json")).passed is False
