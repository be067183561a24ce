"""The callback for Lightning's Trainer, with the real one."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import trainwarden
from tests.integrations.programs import ROOT, Programs
from tests.unit.library.looking import read_metadata, read_progress, read_rank, read_snapshot
from tests.waiting import wait_until
from trainwarden.integrations.lightning import TrainwardenCallback

Begin = Callable[[int], None]


class Line(lightning.LightningModule):
    """Has a known loss and learning rate at each step."""

    def __init__(self, fails_at: int | None = None, exc: BaseException | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.fails_at, self.exc = fails_at, exc
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> Any:
        if self.exc and self.global_step == self.fails_at:
            raise self.exc
        loss = self.layer(batch[0]).pow(2).mean()
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("validation_loss", self.layer(batch[0]).pow(2).mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def loader(rows: int) -> Any:
    return DataLoader(TensorDataset(torch.randn(rows, 4)), batch_size=2)


def make_trainer(*callbacks: Any, **options: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    said = {"accelerator": "cpu", "max_steps": 6, "log_every_n_steps": 1, "enable_checkpointing": False, **options}
    return lightning.Trainer(callbacks=list(callbacks), **quiet, **said)


def saver(folder: Path, **options: Any) -> ModelCheckpoint:
    return ModelCheckpoint(folder / "checkpoints", **{"every_n_train_steps": 2, "save_top_k": -1, **options})


def test_steps_are_those_of_the_optimizer_with_their_values_and_total(attempt: Begin, folder: Path) -> None:
    module = Line()
    make_trainer(TrainwardenCallback(method="descent"), accumulate_grad_batches=2).fit(module, loader(16))
    said, done = read_metadata(folder), read_progress(folder)
    assert (done.step, done.total_steps, done.steps_completed) == (6, 6, 6)
    # The loss is that of the last batch; the rate is that with which the sixth step was made.
    assert (done.loss, done.learning_rate) == (pytest.approx(module.losses[-1]), 0.5**6)
    assert done.epoch == 1
    assert (said.status, said.phase, said.reason) == ("succeeded", "done", None)
    assert (said.framework, said.model, said.method) == ("lightning", "Line", "descent")


def test_samples_are_counted_over_the_batches_of_a_step(
    attempt: Begin, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Any] = []
    step = trainwarden.Run.step

    def count(run: trainwarden.Run, number: int, **values: Any) -> None:
        counted.append((number, values["samples"]))
        step(run, number, **values)

    monkeypatch.setattr(trainwarden.Run, "step", count)
    make_trainer(TrainwardenCallback(), accumulate_grad_batches=2, max_steps=3).fit(Line(), loader(16))
    assert counted == [(1, 4), (2, 4), (3, 4)]


def test_a_loss_that_is_nan_is_counted(attempt: Begin, folder: Path) -> None:
    module = Line()
    torch.nn.init.constant_(module.layer.weight, float("nan"))
    make_trainer(TrainwardenCallback(), max_steps=2).fit(module, loader(16))
    assert read_progress(folder).nonfinite == 2


def test_evaluation_and_checkpoints_are_phases_and_the_sanity_check_is_no_step(
    attempt: Begin, folder: Path, tmp_path: Path, phases: list[str]
) -> None:
    trainer = make_trainer(
        TrainwardenCallback(), saver(tmp_path), enable_checkpointing=True, val_check_interval=3, max_steps=4
    )
    trainer.fit(Line(), loader(16), loader(4))
    assert phases == [
        *("eval", "init"),  # the sanity check
        "train",
        *("checkpoint", "train"),  # after step 2
        *("eval", "train"),  # 3
        *("checkpoint", "train"),  # 4
    ]
    assert read_metadata(folder).attempts[0].resume_step == 1


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["epoch=0-step=6.ckpt", "epoch=0-step=4.ckpt", "epoch=0-step=2.ckpt"]),
        ({"save_last": True}, ["epoch=0-step=6.ckpt", "epoch=0-step=4.ckpt", "epoch=0-step=2.ckpt"]),
        ({"save_last": True, "save_top_k": 0}, ["last.ckpt"]),
    ],
)
def test_checkpoints_are_recorded_under_the_names_that_lightning_gave_them(
    attempt: Begin, folder: Path, tmp_path: Path, options: dict[str, Any], names: list[str]
) -> None:
    trainer = make_trainer(TrainwardenCallback(), saver(tmp_path, **options), enable_checkpointing=True)
    trainer.fit(Line(), loader(16))
    done = read_progress(folder)
    assert [Path(one.path).name for one in done.checkpoints] == names
    assert done.checkpoints[0].step == 6
    assert all(one.size_bytes == Path(one.path).stat().st_size for one in done.checkpoints)


def test_of_two_that_save_only_the_one_that_did_is_recorded(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    often, seldom = saver(tmp_path / "often"), saver(tmp_path / "seldom", every_n_train_steps=4)
    make_trainer(TrainwardenCallback(), often, seldom, enable_checkpointing=True).fit(Line(), loader(16))
    saved = [(Path(one.path).parts[-3], one.step) for one in read_progress(folder).checkpoints]
    assert saved == [("often", 6), ("seldom", 4), ("often", 4)]


def test_the_best_is_recorded_when_it_is_written_over(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    # From some weights the loss does not go down to the end.
    torch.manual_seed(1)
    best = ModelCheckpoint(
        tmp_path / "best", "same", monitor="validation_loss", mode="min", enable_version_counter=False
    )
    trainer = make_trainer(TrainwardenCallback(), best, enable_checkpointing=True, val_check_interval=2, max_steps=8)
    trainer.fit(Line(), loader(16), loader(4))
    done = read_progress(folder)
    assert (done.checkpoint.path, done.checkpoint.step) == (best.best_model_path, 8)


def test_an_exception_is_recorded_even_where_somebody_catches_it(attempt: Begin, folder: Path) -> None:
    with pytest.raises(FloatingPointError):
        make_trainer(TrainwardenCallback()).fit(Line(3, FloatingPointError("loss is NaN")), loader(16))
    record = read_snapshot(folder)
    assert (record.state, record.progress.step) == ("failed", 3)
    assert json.loads((folder / "_error").read_text())["failure"] == "numeric"


def test_a_training_that_failed_resumes_from_its_last_checkpoint(attempt: Begin, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad batch"):
        make_trainer(TrainwardenCallback(), saver(tmp_path), enable_checkpointing=True).fit(
            Line(5, ValueError("bad batch")), loader(16)
        )
    attempt(1)
    callback = TrainwardenCallback()
    checkpoint = callback.resume_checkpoint()
    assert checkpoint is not None and Path(checkpoint).name == "epoch=0-step=4.ckpt"
    make_trainer(callback, saver(tmp_path), enable_checkpointing=True).fit(Line(), loader(16), ckpt_path=checkpoint)
    said, done = read_metadata(folder), read_progress(folder)
    assert (said.status, [one.resume_step for one in said.attempts]) == ("succeeded", [1, 5])
    assert (done.step, done.total_steps, done.steps_completed) == (6, 6, 7)


def test_a_refused_run_keeps_the_training_from_starting(attempt: Begin) -> None:
    module = Line()
    with pytest.raises(trainwarden.RunRefused, match="elsewhere"):
        make_trainer(TrainwardenCallback("../elsewhere")).fit(module, loader(16))
    assert module.losses == []


def test_the_run_in_progress_is_used_and_left_to_whoever_began_it(attempt: Begin, folder: Path) -> None:
    with trainwarden.run(model="mine") as run:
        trainer = make_trainer(TrainwardenCallback("another"))
        trainer.fit(Line(), loader(16), loader(4))
        assert read_metadata(folder).status == "running"
        trainer.validate(Line(), loader(4), verbose=False)
        run.step(7)
    assert (read_metadata(folder).model, read_metadata(folder).status) == ("mine", "succeeded")
    assert (read_progress(folder).step, read_progress(folder).total_steps) == (7, 6)


def test_nothing_raises_into_the_trainer(
    attempt: Begin, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("another version")

    for name in ("expect", "step", "enter"):
        monkeypatch.setattr(f"trainwarden.integrations.callback_adapter.CallbackAdapter.{name}", fail)
    trainer = make_trainer(TrainwardenCallback(), saver(tmp_path), enable_checkpointing=True)
    trainer.fit(Line(), loader(16), loader(4))
    assert (trainer.global_step, read_metadata(folder).status) == (6, "succeeded")


_ENDLESS = """
    import sys
    from tests.integrations.test_lightning import *
    class Slow(Line):
        def training_step(self, batch, index):
            if self.global_step == 3: print("there", flush=True)
            import time; time.sleep(0.01)
            return super().training_step(batch, index)
    if "with" in sys.argv:
        trainwarden.run()
    make_trainer(TrainwardenCallback(), max_steps=10**6).fit(Slow(), loader(16))
"""


@pytest.mark.parametrize("own", ["", "with"])
@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_a_request_to_end_is_a_cancellation_and_lightning_ends_as_it_would(
    programs: Programs, number: int, reason: str, own: str
) -> None:
    process = programs.start(programs.script(_ENDLESS), own)
    assert process.stdout is not None
    while process.stdout.readline().strip() not in {"there", ""}:
        pass
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    record = read_snapshot(programs.folder)
    assert (record.state, record.metadata.reason) == ("cancelled", reason)
    # Its own exit status, not death of the signal: it has torn down what it set up.
    assert process.returncode == (1 if number == signal.SIGINT else 0)


def test_it_works_under_the_older_name_too(programs: Programs) -> None:
    script = programs.script("""
        import sys
        import pytorch_lightning, torch
        from torch.utils.data import DataLoader, TensorDataset
        from trainwarden.integrations.lightning import TrainwardenCallback

        class Line(pytorch_lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                return self.layer(batch[0]).pow(2).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        callback = TrainwardenCallback()
        assert isinstance(callback, pytorch_lightning.Callback) and "lightning" not in sys.modules
        options = dict(accelerator="cpu", max_steps=3, logger=False, default_root_dir=sys.argv[1])
        pytorch_lightning.Trainer(callbacks=[callback], **options).fit(
            Line(), DataLoader(TensorDataset(torch.randn(8, 4))))
    """)
    done = programs.run(script, programs.runs.parent / "out")
    assert done.returncode == 0, done.stdout
    record = read_snapshot(programs.folder)
    assert (record.state, record.progress.step, record.progress.checkpoint.step) == ("succeeded", 3, 3)


@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_ranks_are_distinguished_under_every_launcher(programs: Programs, launcher: str) -> None:
    out = programs.runs.parent / "out"
    arguments = ["--steps", "6", "--save-steps", "3", "--devices", "2", "--output-dir", str(out)]
    arguments.insert(0, str(ROOT / "examples/lightning/train.py"))
    done = programs.torchrun(2, *arguments) if launcher == "torchrun" else programs.run(*arguments)
    assert done.returncode == 0, done.stdout
    said, saved = read_metadata(programs.folder), read_progress(programs.folder)
    assert (said.status, said.attempt, saved.checkpoint.step) == ("succeeded", 0, 6)
    beats = [read_rank(programs.folder, rank) for rank in (0, 1)]
    assert [(beat.step, beat.status, beat.attempt_key) for beat in beats] == [(6, "succeeded", said.attempt_key)] * 2
    assert beats[0].pid != beats[1].pid


def test_a_rank_that_lightning_started_names_itself_in_its_failure(programs: Programs) -> None:
    script = programs.script("""
        import os, sys
        from tests.integrations.test_lightning import *
        exc = ValueError("bad batch") if os.environ.get("LOCAL_RANK") == "1" else None
        make_trainer(TrainwardenCallback(), devices=2, strategy="ddp").fit(Line(2, exc), loader(16))
    """)
    process = programs.start(script)
    wait_until((programs.folder / "_error").exists)
    process.communicate(timeout=60)
    error = json.loads((programs.folder / "_error").read_text())
    assert (error["rank"], error["message"]) == (1, "bad batch")
    assert read_snapshot(programs.folder).state == "failed"
