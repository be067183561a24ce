"""A callback for Lightning's Trainer, under either of its names: `lightning.pytorch` and `pytorch_lightning`."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainwarden.identity import current_attempt_key
from trainwarden.integrations.saved_files import SavedFiles
from trainwarden.integrations.spokesman import Spokesman, harmless

# The two are packages of their own, with classes of their own: that of the name in use is wanted.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback

if TYPE_CHECKING:
    from trainwarden.training.run import Run

_FRAMEWORK = "lightning"


class TrainwardenCallback(Callback):  # type: ignore[misc]  # Lightning is absent where types are checked
    """Tells the run's record what a `Trainer` does: `Trainer(callbacks=[TrainwardenCallback("vit-7")])`.

    It speaks for the run in progress; where there is none it begins one when `fit` begins, which may raise
    `RunRefused`, and ends it when `fit` ends. Nothing raises in between. Every rank needs one.

    Args:
        run_id: of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        model, method, dir, s3, thresholds: as in `trainwarden.run()`; the model is the module's class if None.
    """

    def __init__(
        self,
        run_id: str | None = None,
        *,
        model: str | None = None,
        method: str | None = None,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002  # as in run()
        s3: str | None = None,
        thresholds: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        options = {"model": model, "method": method, "dir": dir, "s3": s3, "thresholds": thresholds}
        self._says = Spokesman(run_id, {name: value for name, value in options.items() if value is not None})
        self._files = SavedFiles()
        self._step = 0
        self._samples = 0
        self._learning_rate: float | None = None

    def resume_checkpoint(self) -> str | None:
        """What to give to `trainer.fit(ckpt_path=…)`; begins the run where none is in progress.

        Raises:
            RunRefused: it must not begin.
        """
        return self._says.begin(_FRAMEWORK).resume_checkpoint()

    @property
    def run(self) -> "Run | None":
        """The run that the callback speaks for, while it does."""
        return self._says.run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin the run, unless one is in progress."""
        if stage == "fit":
            # Lightning may start the ranks itself, and then tells them less than other launchers do.
            key = trainer.strategy.broadcast(str(current_attempt_key()))
            known = {"TRAINWARDEN_ATTEMPT_KEY": key, "RANK": str(trainer.global_rank)}
            if trainer.world_size > 1:
                known["WORLD_SIZE"] = str(trainer.world_size)
            self._says.begin(_FRAMEWORK, known, model=type(pl_module).__name__)

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What is known now of the training."""
        self._says.expect(trainer.estimated_stepping_batches)
        self._step, self._samples = trainer.global_step, 0

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Count the epoch."""
        self._settle(trainer)
        if self._says.run:
            self._says.run.epoch(trainer.current_epoch)

    @harmless
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Whatever was between two batches is over."""
        self._settle(trainer)

    @harmless
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The learning rate of the step; afterwards the scheduler has set that of the next."""
        self._learning_rate = optimizer.param_groups[0]["lr"]

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step, if the batch was the last of one."""
        self._samples += _rows(batch) * trainer.world_size
        step = trainer.global_step
        if step == self._step:
            return
        is_logged = self._step == 0 or step % (trainer.log_every_n_steps or 1) == 0
        values = _values(trainer, outputs, self._learning_rate) if is_logged else {}
        samples, self._step, self._samples = self._samples, step, 0
        self._says.step(step, samples=samples or None, epoch=trainer.current_epoch, **values)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Evaluation, the sanity check before training among it, makes no step."""
        self._settle(trainer)
        self._says.enter("eval")

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The evaluation is over."""
        self._says.leave()

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    @harmless
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """A checkpoint is about to be written; where to is known afterwards."""
        self._files.begin(trainer.checkpoint_callbacks, trainer.global_step)
        self._says.enter("checkpoint")

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Whatever was saved is on disk."""
        self._settle(trainer)

    @harmless
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Whatever was saved is on disk."""
        self._settle(trainer)

    def _settle(self, trainer: Any) -> None:
        # Lightning waits for all ranks before it goes on after a checkpoint, and calls those who save after all others.
        if self._files.expected:
            self._says.leave()
            for path, step in self._files.written(trainer.checkpoint_callbacks):
                if self._says.run:
                    self._says.run.checkpoint_saved(path, step)

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run if it was begun here."""
        self._settle(trainer)
        # Lightning turns Ctrl-C into exit status 1, in which nobody could see it any more.
        self._says.end(exception, foreign=isinstance(exception, KeyboardInterrupt))

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the run if it was begun here."""
        if stage == "fit":
            self._settle(trainer)
            self._says.end()


def _values(trainer: Any, outputs: Any, learning_rate: Any) -> dict[str, float | None]:
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    # Lightning divides it among the batches of a step.
    loss = None if loss is None else float(loss) * trainer.accumulate_grad_batches
    norm = trainer.callback_metrics.get("grad_norm")
    return {
        "loss": loss,
        "learning_rate": None if learning_rate is None else float(learning_rate),
        "grad_norm": None if norm is None else float(norm),
    }


def _rows(batch: Any) -> int:
    """How many samples a batch has: the length of its first tensor; 0 if it has none."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return next((rows for part in batch if (rows := _rows(part))), 0)
    shape: Sequence[int] = getattr(batch, "shape", ())
    return int(shape[0]) if shape else 0
