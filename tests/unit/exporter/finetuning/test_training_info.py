"""What is read out of the files that trainers write about themselves."""

from __future__ import annotations

from typing import Any

from tests.cases import cases
from trainwarden_exporter.finetuning.job import JobValues
from trainwarden_exporter.finetuning.training_info import KEYS, SavedCheckpoint, TrainingInfo, parse_training_info

TRAINER_STATE = {
    "epoch": 1.25, "global_step": 500, "max_steps": 2000, "num_train_epochs": 5, "logging_steps": 10,
    "log_history": [
        {"epoch": 1.0, "grad_norm": 0.9, "learning_rate": 2e-4, "loss": 1.7, "step": 400},
        {"epoch": 1.0, "eval_loss": 1.9, "eval_samples_per_second": 80.0, "step": 400},
        {"epoch": 1.22, "learning_rate": 1e-4, "loss": 1.5, "step": 490},
    ],
}  # fmt: skip


def reading(document: Any) -> JobValues:
    return parse_training_info(document).values


def test_a_trainer_state_shows_a_job_that_runs() -> None:
    assert reading(TRAINER_STATE) == JobValues(
        status=1, epoch=1.25, step=500, progress=25, loss=1.5, learning_rate=1e-4
    )


def test_a_trainer_state_with_a_summary_shows_a_job_that_has_succeeded() -> None:
    summary = {"epoch": 5.0, "step": 2000, "train_loss": 1.6, "train_runtime": 7200.5, "train_samples_per_second": 12.5}
    history = [*TRAINER_STATE["log_history"], summary]  # type: ignore[misc]  # a list
    found = parse_training_info({**TRAINER_STATE, "global_step": 2000, "epoch": 5.0, "log_history": history})
    assert (found.values.status, found.duration, found.values.samples_per_second) == (2, 7200.5, 12.5)
    assert (found.values.progress, found.values.epoch) == (100, 5)


def test_a_run_time_beside_each_loss_is_no_end() -> None:
    """Trainer writes it into every line where it counts tokens; at the end it sums up the training."""
    lines = [
        {"epoch": 0.5 * step, "learning_rate": 1e-4, "loss": 2.0, "step": step, "train_runtime": 10.0 * step}
        for step in (1, 2, 3)
    ]
    evaluation = {"eval_loss": 2.1, "eval_runtime": 0.1, "step": 3}
    end = {"step": 3, "total_flos": 0.0, "train_loss": 2.0, "train_runtime": 40.0, "train_samples_per_second": 5.0}

    def found(*history: dict[str, float]) -> tuple[int | None, float | None]:
        info = parse_training_info({"global_step": 3, "max_steps": 6, "log_history": list(history)})
        return info.values.status, info.duration

    assert found(*lines) == found(*lines, evaluation) == (1, None)
    assert found(*lines, end) == found(*lines, end, evaluation) == (2, 40.0)
    assert found(*lines, end, *lines) == (1, None)
    assert reading(lines[0]).status == 1


def test_what_a_script_sums_up_at_its_end_is_found_in_its_sections() -> None:
    document = {
        "model_id": "m", "method": "lora",
        "training_config": {"epochs": 3, "learning_rate": 2e-4, "batch_size": 4},
        "results": {"train_loss": 0.5234, "train_runtime": 600, "train_samples_per_second": 8.5},
    }  # fmt: skip
    found = parse_training_info(document)
    assert found == TrainingInfo(
        JobValues(status=2, loss=0.5234, learning_rate=2e-4, samples_per_second=8.5), duration=600
    )


def test_a_log_of_llama_factory_counts_steps_and_percents() -> None:
    line = {"current_steps": 30, "total_steps": 120, "loss": 0.9, "lr": 5e-5, "epoch": 0.5, "percentage": 25.0}
    assert reading({"log_history": [line]}) == JobValues(
        status=1, step=30, progress=25, loss=0.9, learning_rate=5e-5, epoch=0.5
    )


def test_settings_do_not_pass_for_what_is_true_now() -> None:
    assert reading({"config": {"step": 7, "loss": 1.0, "total_steps": 100}, "step": 5}) == JobValues(
        status=1, step=5, progress=5
    )


def test_minus_one_as_number_of_steps_is_no_length() -> None:
    assert reading({"max_steps": -1, "global_step": 5, "epoch": 1, "num_train_epochs": 4}).progress == 25


@cases("name", [key for keys in KEYS.values() for key in keys])
def test_each_documented_name_is_understood(name: str) -> None:
    if name in KEYS["status"]:
        assert reading({name: "paused"}).status == 4
    elif name in (*KEYS["total_steps"], *KEYS["total_epochs"]):
        assert reading({name: 8, "step": 2, "epoch": 2}).progress == 25
    elif name in KEYS["duration"]:
        assert parse_training_info({name: 8, "status": "done"}).duration == 8
    else:
        (field,) = (field for field, keys in KEYS.items() if name in keys)
        assert getattr(reading({name: 8}), field) == 8


@cases(("word", "number"), [("Pending", 0), ("RUNNING", 1), ("completed", 2), ("Cancelled", 3)])
def test_a_status_has_many_names(word: str, number: int) -> None:
    assert reading({"status": word}).status == number


def test_an_unknown_status_is_a_problem_and_the_job_is_taken_to_run() -> None:
    found = parse_training_info({"status": "levitating"})
    assert found.values.status == 1
    assert found.problems == ("status: 'levitating' is no status",)


def test_one_odd_value_costs_no_other() -> None:
    found = parse_training_info(
        {"loss": "a lot", "learning_rate": "2e-4", "step": True, "epoch": float("nan"), "lr": 1}
    )
    assert found.values == JobValues(status=1, learning_rate=2e-4)
    assert found.problems == ("step: 'True' is not a number", "loss: 'a lot' is not a number")


def test_checkpoints_are_listed_with_what_is_known_of_them() -> None:
    listed = ["./checkpoint-1", {"path": "./checkpoint-2", "step": 2, "size_bytes": 9}, {"step": 3, "size": "7"}, 5]
    found = parse_training_info({"checkpoints": listed, "checkpoint": {"path": "./checkpoint-4", "count": 4}})
    assert found.values.checkpoints == 4
    assert found.checkpoints == (
        SavedCheckpoint("./checkpoint-1"),
        SavedCheckpoint("./checkpoint-2@2", 9),
        SavedCheckpoint("3", 7),
        SavedCheckpoint("./checkpoint-4"),
    )
    assert reading({"checkpoints": 6}).checkpoints == 6
