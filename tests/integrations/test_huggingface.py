"""The callback for the Trainer of transformers, with the real one."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import trainwarden
from tests.integrations.programs import ROOT, Programs
from tests.unit.library.looking import read_metadata, read_progress, read_rank, read_snapshot
from trainwarden.integrations.callback_adapter import CallbackAdapter
from trainwarden.integrations.huggingface import TrainwardenCallback
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.finetuning.collector import TrainingInfoCollector
from trainwarden_exporter.finetuning.job import JobLabels

Begin = Callable[[int], None]
_LENGTH = 8


class Crash(TrainerCallback):
    """Raises once a step is done."""

    def __init__(self, step: int, exc: BaseException) -> None:
        self.step, self.exc = step, exc

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise self.exc


class TurnsToNan(GPT2LMHeadModel):
    """Whose loss is NaN from its third batch on."""

    batches = 0

    def forward(self, input_ids: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        self.batches += 1
        output = super().forward(input_ids=input_ids, labels=labels, **kwargs)
        if self.batches >= 3:
            output["loss"] = output["loss"] * float("nan")
        return output


def make_trainer(folder: Path, *callbacks: Any, model: type = GPT2LMHeadModel, **arguments: Any) -> Trainer:
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=32, n_positions=_LENGTH, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
    )
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (16, _LENGTH))]
    options = {"max_steps": 6, "per_device_train_batch_size": 2, "logging_steps": 1, "save_strategy": "no"}
    said = TrainingArguments(
        output_dir=str(folder / "out"), use_cpu=True, report_to=[], disable_tqdm=True, **{**options, **arguments}
    )
    return Trainer(model=model(config), args=said, train_dataset=data, eval_dataset=data[:2], callbacks=list(callbacks))


def test_steps_their_values_and_their_total_are_in_the_record(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    callback = TrainwardenCallback(method="pretraining")
    trainer = make_trainer(tmp_path, callback, gradient_accumulation_steps=2, logging_steps=2)
    trainer.train()
    done, logged = read_progress(folder), [one for one in trainer.state.log_history if "loss" in one]
    assert (done.step, done.total_steps, done.steps_completed, done.nonfinite) == (6, 6, 6, 0)
    assert (done.loss, done.grad_norm) == (logged[-1]["loss"], pytest.approx(logged[-1]["grad_norm"]))
    assert (done.learning_rate, done.epoch) == (logged[-1]["learning_rate"], trainer.state.epoch)
    said = read_metadata(folder)
    assert (said.status, said.phase, said.reason) == ("succeeded", "done", None)
    assert (said.framework, said.model, said.method) == ("transformers", "GPT2LMHeadModel", "pretraining")


def test_tokens_and_samples_are_counted_over_the_batches_of_a_step(
    attempt: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Any] = []
    step = trainwarden.Run.step

    def count(run: trainwarden.Run, number: int, **values: Any) -> None:
        counted.append((number, values.get("tokens"), values.get("samples")))
        step(run, number, **values)

    monkeypatch.setattr(trainwarden.Run, "step", count)
    options: dict[str, Any] = {"gradient_accumulation_steps": 2, "max_steps": 3, "include_num_input_tokens_seen": "all"}
    make_trainer(tmp_path, TrainwardenCallback(), **options).train()
    # Two batches of two, of eight tokens each; what is logged is a report of its own, and counts nothing twice.
    assert counted == [one for n in (1, 2, 3) for one in ((n, 32, 4), (n, None, None))]


def test_evaluation_and_checkpoints_are_phases_of_their_own(attempt: Begin, tmp_path: Path, phases: list[str]) -> None:
    make_trainer(
        tmp_path,
        TrainwardenCallback(),
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=2,
        max_steps=5,
        eval_on_start=True,
    ).train()
    assert phases == [
        *("eval", "init", "train"),
        *("checkpoint", "train"),  # after step 2
        *("eval", "train"),  # 3
        *("checkpoint", "train"),  # 4
        *("eval", "train", "checkpoint", "train"),  # 5, the last
    ]


class Veto(TrainerCallback):
    """Keeps Trainer from saving after all."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save = False


def test_a_checkpoint_that_was_announced_and_never_came_ends_with_the_next_step(
    attempt: Begin, tmp_path: Path, phases: list[str]
) -> None:
    callbacks = (TrainwardenCallback(), Veto())
    make_trainer(tmp_path, *callbacks, save_strategy="steps", save_steps=2, max_steps=4).train()
    assert phases == ["train", "checkpoint", "train", "checkpoint", "train"]


def test_checkpoints_are_recorded_with_their_steps_and_are_complete(
    attempt: Begin, folder: Path, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, TrainwardenCallback(), save_strategy="steps", save_steps=2)
    trainer.train()
    saved = read_progress(folder).checkpoints
    assert [(Path(one.path).name, one.step) for one in saved] == [(f"checkpoint-{n}", n) for n in (6, 4, 2)]
    assert all(one.size_bytes > 1000 for one in saved)


def test_with_several_ranks_a_checkpoint_counts_once_all_have_written_their_part(
    attempt: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        trainwarden.Run, "checkpoint_saved", lambda _, path, step: seen.append((step, len(list(Path(path).iterdir()))))
    )
    args = SimpleNamespace(world_size=2, output_dir=tmp_path, gradient_accumulation_steps=1)
    args.should_save, args.save_only_model = True, False
    state = SimpleNamespace(global_step=1, max_steps=4, num_input_tokens_seen=0, epoch=0, train_batch_size=1)
    callback, control = TrainwardenCallback(), SimpleNamespace(should_evaluate=False, should_save=False)
    callback.on_train_begin(args, state, control)
    callback.on_save(args, state, control)
    assert seen == []
    write_part(tmp_path, 1, 0)
    write_part(tmp_path, 1, 1)
    # All ranks have made the next step.
    state.global_step = 2
    callback.on_step_end(args, state, control)
    assert seen == [(1, 2)]
    # No step comes after this one.
    write_part(tmp_path, 2, 0)
    callback.on_save(args, state, control)
    threading.Timer(0.3, write_part, (tmp_path, 2, 1)).start()
    callback.on_train_end(args, state, control)
    assert seen == [(1, 2), (2, 2)]


def write_part(folder: Path, step: int, rank: int) -> None:
    path = folder / f"checkpoint-{step}" / f"rng_state_{rank}.pth"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"state")


def test_a_refused_run_keeps_the_training_from_starting(attempt: Begin, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, TrainwardenCallback("../elsewhere"))
    with pytest.raises(trainwarden.RunRefused, match="elsewhere"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_the_run_in_progress_is_used_and_left_to_whoever_began_it(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    with trainwarden.run(model="mine") as run:
        trainer = make_trainer(tmp_path, TrainwardenCallback("another"))
        trainer.train()
        assert read_metadata(folder).status == "running"
        trainer.evaluate()
        run.step(7)
    assert (read_metadata(folder).model, read_metadata(folder).status) == ("mine", "succeeded")
    assert (read_progress(folder).step, read_progress(folder).total_steps) == (7, 6)


def test_a_training_that_failed_resumes_from_its_last_checkpoint(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    with pytest.raises(OSError, match="gone"), trainwarden.run():
        make_trainer(tmp_path, TrainwardenCallback(), Crash(5, OSError(5, "the disk is gone")), **options).train()
    record = read_snapshot(folder)
    assert (record.state, record.error.message) == ("failed", "[Errno 5] the disk is gone")

    attempt(1)
    callback = TrainwardenCallback()
    trainer = make_trainer(tmp_path, callback, **options)
    checkpoint = callback.resume_checkpoint()
    assert checkpoint is not None and Path(checkpoint).name == "checkpoint-4"
    trainer.train(resume_from_checkpoint=checkpoint)
    said, done = read_metadata(folder), read_progress(folder)
    assert (said.status, said.attempt, [one.resume_step for one in said.attempts]) == ("succeeded", 1, [1, 5])
    # Step 5 was made twice.
    assert (done.step, done.total_steps, done.steps_completed) == (6, 6, 7)


def test_what_a_callback_alone_cannot_see_is_recorded_when_the_script_ends(programs: Programs) -> None:
    script = programs.script("""
        import sys
        from pathlib import Path
        from tests.integrations.test_huggingface import *
        crash = Crash(3, RuntimeError("CUDA error: unspecified launch failure"))
        make_trainer(Path.cwd(), TrainwardenCallback(), crash).train()
    """)
    assert programs.run(script).returncode == 1
    record = read_snapshot(programs.folder)
    assert (record.state, record.progress.step) == ("failed", 3)
    assert json.loads((programs.folder / "_error").read_text())["failure"] == "cuda_launch_failure"


def test_the_filter_hides_a_loss_that_is_nan_and_not_the_gradients_norm(
    attempt: Begin, folder: Path, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, TrainwardenCallback(), model=TurnsToNan, max_steps=4)
    trainer.train()
    done = read_progress(folder)
    # Steps 3 and 4: their norms are NaN, and each is counted once.
    assert (done.nonfinite, done.loss is not None, done.grad_norm) == (2, True, None)


def test_a_loss_that_is_nan_is_seen_without_the_filter_and_no_norm(
    attempt: Begin, folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"max_steps": 4, "logging_nan_inf_filter": False, "max_grad_norm": 0.0}
    make_trainer(tmp_path, TrainwardenCallback(), model=TurnsToNan, **options).train()
    assert (read_progress(folder).nonfinite, read_progress(folder).loss) == (2, None)


def test_nothing_raises_into_the_trainer(
    attempt: Begin, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("another version")

    for name in ("expect", "step", "enter"):
        monkeypatch.setattr(CallbackAdapter, name, fail)
    trainer = make_trainer(
        tmp_path, TrainwardenCallback(), eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=2
    )
    trainer.train()
    assert (trainer.state.global_step, read_metadata(folder).status) == (6, "succeeded")


def test_the_example_runs_with_two_ranks_and_its_checkpoints_have_the_parts_of_both(programs: Programs) -> None:
    out = programs.runs.parent / "out"
    options = ("--steps", "10", "--save-steps", "5", "--output-dir", out)
    done = programs.torchrun(2, ROOT / "examples/huggingface/train.py", *options)
    assert done.returncode == 0, done.stdout
    saved = read_progress(programs.folder).checkpoints
    assert [one.step for one in saved] == [10, 5]
    for one in saved:
        parts = [part.stat().st_size for part in Path(one.path).iterdir()]
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= {part.name for part in Path(one.path).iterdir()}
        assert one.size_bytes == sum(parts)
    beats = [read_rank(programs.folder, rank) for rank in (0, 1)]
    assert [(beat.step, beat.status) for beat in beats] == [(10, "succeeded")] * 2
    assert beats[0].attempt_key == beats[1].attempt_key


def test_a_sidecar_sees_the_end_of_a_training_that_counts_tokens_once(tmp_path: Path) -> None:
    """As the documentation recommends it: then every line of the log has a run time."""
    out = tmp_path / "out"
    follower = TrainingInfoCollector(out, JobLabels("j", "m", "lora"))

    def shown(name: str) -> float:
        page = encode_text(follower.collect()).decode()
        labels = 'job_name="j",model_id="m",method="lora"'
        found = re.search(rf"^finetuning_{name}\{{{labels}\}} (.*)$", page, re.MULTILINE)
        assert found, page
        return float(found[1])

    seen = []

    class Looks(TrainerCallback):
        """Reads what the sidecar shows after each checkpoint."""

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append((shown("job_status"), shown("job_duration_seconds_count")))

    trainer = make_trainer(
        tmp_path,
        Looks(),
        include_num_input_tokens_seen="all",
        save_strategy="steps",
        save_steps=2,
        eval_strategy="steps",
        eval_steps=3,
    )
    trainer.train()
    trainer.save_state()
    assert seen == [(1.0, 0.0)] * 3
    for _ in range(2):
        assert (shown("job_status"), shown("job_duration_seconds_count")) == (2.0, 1.0)
