"""`trainwarden validate-job`: what it adds to the promises that tests/compat/finetuning_metrics holds."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import trainwarden_exporter
from tests.cases import cases
from trainwarden import cli
from trainwarden_exporter.finetuning import validation
from trainwarden_exporter.finetuning.training_info import loss_history
from trainwarden_exporter.finetuning.validation import FineTuningValidator

INFO = {"loss": 0.5234, "log_history": [{"loss": 2.0}, {"loss": 1.0, "eval_loss": 9.0}, {"loss": 0.5234}]}
PROFILE = {
    "model_id": "Qwen/Qwen2.5-7B-Instruct",
    "precision": "fp16",
    "memory_requirement_gb": 20.0,
    "gpu_sharing": {"memory_limit_gb": 25.0, "partition_id": None},
    "resource_requirements": {"gpu_memory_gb": 20.0, "gpu_count": 1},
}


def model_folder(path: Path) -> Path:
    """A model of Transformers with one tensor, as `save_pretrained` lays it out."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    (path / "generation_config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    data = struct.pack("<2f", 1.0, 2.0)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The options of a job that is as it should be."""
    (tmp_path / "training_info.json").write_text(json.dumps(INFO))
    (tmp_path / "aim_profile.json").write_text(json.dumps(PROFILE))
    checkpoint = model_folder(tmp_path / "checkpoints/checkpoint-10")
    return {
        "--training-info": str(tmp_path / "training_info.json"),
        "--checkpoint-path": str(checkpoint),
        "--profile-path": str(tmp_path / "aim_profile.json"),
    }


def call(job: dict[str, str], *more: str) -> int:
    return cli.main(["validate-job", *(word for pair in job.items() for word in pair), *more])


@cases(
    ("info", "message"),
    [
        ({}, "No training loss found"),
        ({"loss": "low"}, "No training loss found"),
        ({"loss": float("nan")}, "Training loss is nan"),
        ({"log_history": [{"loss": 1.0}, {"loss": float("nan")}, {"loss": 1.0}]}, "NaN or infinite before"),
        ({"log_history": [{"loss": 1.0}] * 5 + [{"loss": 1.5}] * 5}, "not decreasing: from 1.0000 to 1.5000"),
        ({"train_loss": -1.0}, "out of range"),
    ],
)
def test_a_loss_that_is_wrong_fails(info: dict[str, Any], message: str) -> None:
    found = FineTuningValidator().validate_training_loss(info)
    assert found.passed is False
    assert message in found.message


def test_losses_of_evaluations_and_of_the_sum_are_no_history() -> None:
    log = [{"loss": 2.0}, {"eval_loss": 5.0}, {"loss": "1.0"}, {"train_loss": 1.5, "train_runtime": 9.0}]
    assert loss_history({"trainer_state": {"log_history": log}}) == [2.0, 1.0]


@pytest.mark.parametrize("path", [None, 5])
def test_what_is_no_path_of_a_profile_fails(path: Any) -> None:
    found = FineTuningValidator().validate_aim_profile(path)
    assert (found.passed, found.message) == (False, f"AIM profile: the path is {path}, expected a path")


def test_a_profile_of_the_service_itself_in_yaml_passes(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text("aim_id: q/w\nmodel_id: q/w\nmetadata: {engine: vllm, gpu: MI300X, gpu_count: 1}\n")
    assert FineTuningValidator().validate_aim_profile(path).passed is True


def test_what_could_not_be_checked_is_neither_passed_nor_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    argv = ["validate-job", "--model-path", str(model_folder(tmp_path / "m")), "--prompt", "x", "--trust", "complete"]
    assert cli.main([*argv, "--metrics-file", str(tmp_path / "v.prom"), "--job-name", "my-job"]) == 3
    told = capsys.readouterr().out
    assert "? UNKNOWN - model_output" in told
    assert "Summary: 1/2 checks passed" in told
    families = {
        family.name: family.samples for family in text_string_to_metric_families((tmp_path / "v.prom").read_text())
    }
    [passed] = families["finetuning_validation_passed"]
    assert (passed.labels["check"], passed.labels["job_name"], passed.value) == ("checkpoint_integrity", "my-job", 1)
    assert families["finetuning_validation_timestamp_seconds"]


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What was asked of each model; the models answer with the name of their folder."""
    asked: list[tuple[str, list[str]]] = []

    def generate(path: str, prompts: list[str], _tokens: int) -> list[str]:
        asked.append((path, list(prompts)))
        return [f"{Path(path).name} {prompt}" for prompt in prompts]

    monkeypatch.setattr(validation, "generate", generate)
    return asked


def test_prompts_come_from_the_call_or_from_the_data_set(
    tmp_path: Path, generated: list[tuple[str, list[str]]]
) -> None:
    rows = [{"instruction": "Say blue", "output": "blue"}, {"messages": [{"role": "user", "content": "Say red"}]}]
    (tmp_path / "test.jsonl").write_text("\n".join(["{", "", *map(json.dumps, rows)]))
    validator = FineTuningValidator(tmp_path / "test.jsonl")
    assert validator.validate_model_output("/m/tuned", test_prompts=["Say"], expected_keywords=["tuned"]).passed
    assert validator.validate_model_output("/m/tuned").passed
    assert [prompts for _, prompts in generated] == [["Say"], ["Say blue", "Say red"]]
    (tmp_path / "test.jsonl").write_text("{}\n")
    found = validator.validate_model_output("/m/tuned")
    assert (found.passed, "no line has a prompt" in found.message) == (False, True)
    assert FineTuningValidator().validate_model_output("/m/tuned").passed is None


def test_two_models_are_compared_by_what_they_say(generated: list[tuple[str, list[str]]]) -> None:
    found = FineTuningValidator().compare_models("/m/base", "/m/tuned", ["Say"], ["tuned", "say"])
    assert isinstance(found, trainwarden_exporter.ModelComparison)
    assert (found.base_outputs, found.outputs, found.changed) == (("base Say",), ("tuned Say",), 1)
    assert (found.base_score, found.score, found.improvement, found.problem) == (0.5, 1.0, 0.5, None)
    assert [path for path, _ in generated] == ["/m/base", "/m/tuned"]
    assert json.loads(json.dumps(found.to_json()))["improvement"] == 0.5


def test_models_that_are_not_there_are_not_compared(tmp_path: Path) -> None:
    found = FineTuningValidator().compare_models(tmp_path / "base", tmp_path / "tuned", test_prompts=["Say"])
    assert (found.outputs, found.improvement) == ((), None)
    assert "There is no model" in str(found.problem)


def test_results_as_json(job: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(job, "--json", "--trust", "complete", "--output", str(tmp_path / "report.json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is True
    assert json.loads((tmp_path / "report.json").read_text()) == document


@cases(
    ("argv", "words"),
    [
        ([], "nothing to check"),
        (["--training-info", "/no/such/file.json"], "/no/such/file.json"),
        (["--training-info", __file__], f"--training-info: {__file__}: is not JSON: "),
        (["--expect", "word", "--model-path", "x"], "--prompt"),
        (["--prompt", "word", "--profile-path", "x"], "--model-path"),
        (["--profile-path", "x", "--min-loss", "3", "--max-loss", "2"], "--min-loss 3 is above --max-loss 2"),
        (["--model-path", "x", "--max-new-tokens", "0"], "expected 1 to"),
    ],
)
def test_misuse_is_status_2_and_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["validate-job", *argv])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
