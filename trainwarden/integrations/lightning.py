"""A callback for Lightning's Trainer, under either of its names: `lightning.pytorch` and `pytorch_lightning`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainwarden.identity import current_attempt_key
from trainwarden.integrations.callback_adapter import CallbackAdapter, never_raises

# Both packages have a class of their own, and a Trainer accepts only that of its package.
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

# Inode, modification time in ns, size in bytes; None for an absent file.
_Signature = tuple[int, int, int] | None


class TrainwardenCallback(Callback):  # type: ignore[misc]  # Lightning is absent where types are checked
    """Records what a `Trainer` does: `Trainer(callbacks=[TrainwardenCallback("vit-7")])`.

    It reports to the run in progress. Without one it begins a run when `fit` begins, which may raise `RunRefused`, and
    ends it when `fit` ends. Nothing raises in between. Every rank needs a callback.

    Args:
        run_id: name of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        model, method, dir, s3, thresholds: as in `trainwarden.run()`; the module's class if `model` is None.
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
        self._adapter = CallbackAdapter(run_id, {name: value for name, value in options.items() if value is not None})
        self._files = SavedFiles()
        self._step = 0
        self._samples = 0
        self._learning_rate: float | None = None

    def resume_checkpoint(self) -> str | None:
        """Return the argument for `trainer.fit(ckpt_path=…)`; begins the run where none is in progress.

        Raises:
            RunRefused: the run must not begin.
        """
        return self._adapter.begin(_FRAMEWORK).resume_checkpoint()

    @property
    def run(self) -> Run | None:
        """The run that the callback reports to; None before `fit` begins and after it ends."""
        return self._adapter.run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin the run, unless one is in progress."""
        if stage == "fit":
            # Lightning may start the ranks itself, with fewer variables than other launchers set.
            key = trainer.strategy.broadcast(str(current_attempt_key()))
            known = {"TRAINWARDEN_ATTEMPT_KEY": key, "RANK": str(trainer.global_rank)}
            if trainer.world_size > 1:
                known["WORLD_SIZE"] = str(trainer.world_size)
            self._adapter.begin(_FRAMEWORK, known, model=type(pl_module).__name__)

    @never_raises
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Set the total number of steps."""
        self._adapter.expect(trainer.estimated_stepping_batches)
        self._step, self._samples = trainer.global_step, 0

    @never_raises
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Report the epoch."""
        self._record_checkpoints(trainer)
        if self._adapter.run:
            self._adapter.run.epoch(trainer.current_epoch)

    @never_raises
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Record checkpoints that were saved between two batches."""
        self._record_checkpoints(trainer)

    @never_raises
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Read the learning rate of the step, before the scheduler sets that of the next."""
        self._learning_rate = optimizer.param_groups[0]["lr"]

    @never_raises
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step, if the batch was its last."""
        self._samples += _rows(batch) * trainer.world_size
        step = trainer.global_step
        if step == self._step:
            return
        is_logged = self._step == 0 or step % (trainer.log_every_n_steps or 1) == 0
        values = _values(trainer, outputs, self._learning_rate) if is_logged else {}
        samples, self._step, self._samples = self._samples, step, 0
        self._adapter.step(step, samples=samples or None, epoch=trainer.current_epoch, **values)

    @never_raises
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Enter the phase eval, also for the sanity check before training."""
        self._record_checkpoints(trainer)
        self._adapter.enter("eval")

    @never_raises
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the phase eval."""
        self._adapter.leave()

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    @never_raises
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Enter the phase checkpoint; the path is known only after the checkpoint is written."""
        self._files.begin(trainer.checkpoint_callbacks, trainer.global_step)
        self._adapter.enter("checkpoint")

    @never_raises
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Record checkpoints that were saved since the last batch."""
        self._record_checkpoints(trainer)

    @never_raises
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record checkpoints that were saved since the last batch."""
        self._record_checkpoints(trainer)

    def _record_checkpoints(self, trainer: Any) -> None:
        # Lightning waits for all ranks after a checkpoint, and calls ModelCheckpoint after all other callbacks.
        if self._files.expected:
            self._adapter.leave()
            for path, step in self._files.written(trainer.checkpoint_callbacks):
                if self._adapter.run:
                    self._adapter.run.checkpoint_saved(path, step)

    @never_raises
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run if this callback began it; after Ctrl-C in any case."""
        self._record_checkpoints(trainer)
        # Lightning turns Ctrl-C into exit status 1, which would look like a failure.
        self._adapter.end(exception, foreign=isinstance(exception, KeyboardInterrupt))

    @never_raises
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the run if this callback began it."""
        if stage == "fit":
            self._record_checkpoints(trainer)
            self._adapter.end()


class SavedFiles:
    """Finds the files that `ModelCheckpoint` callbacks have written: Lightning passes the paths to no hook.

    It compares the files that the callbacks name before and after a checkpoint.
    """

    def __init__(self) -> None:
        self._before: dict[str, _Signature] = {}
        self._step: int | None = None

    @property
    def expected(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._step is not None

    def begin(self, savers: Iterable[Any], step: int) -> None:
        """Remember the present files: a checkpoint of `step` is about to be written."""
        if self._step is None:
            self._before = {path: _signature(path) for saver in savers for path in _named(saver)}
        self._step = step

    def written(self, savers: Iterable[Any]) -> list[tuple[str, int]]:
        """Return the path and step of what was written since, one for each callback; it stays expected until then."""
        step = self._step
        if step is None:
            return []
        found = [path for saver in savers if (path := self._newest(saver))]
        if found:
            self._step = None
        return [(path, step) for path in found]

    def _newest(self, saver: Any) -> str | None:
        # `last` comes last: it is overwritten each time, and is often only a link to another.
        for path in _named(saver):
            if (now := _signature(path)) is not None and now != self._before.get(path):
                return path
        return None


def _named(saver: Any) -> list[str]:
    kept = [saver.best_model_path, *reversed(saver.best_k_models)] if hasattr(saver, "best_k_models") else []
    return [str(path) for path in (*kept, getattr(saver, "last_model_path", "")) if path]


def _signature(path: str) -> _Signature:
    try:
        status = os.stat(path)  # noqa: PTH116  # a remote address may be no Path
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _values(trainer: Any, outputs: Any, learning_rate: Any) -> dict[str, float | None]:
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    # Lightning divides the loss by the batches of a step.
    loss = None if loss is None else float(loss) * trainer.accumulate_grad_batches
    norm = trainer.callback_metrics.get("grad_norm")
    return {
        "loss": loss,
        "learning_rate": None if learning_rate is None else float(learning_rate),
        "grad_norm": None if norm is None else float(norm),
    }


def _rows(batch: Any) -> int:
    """Return the number of samples in a batch: the length of its first tensor, 0 if it has none."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return next((rows for part in batch if (rows := _rows(part))), 0)
    shape: Sequence[int] = getattr(batch, "shape", ())
    return int(shape[0]) if shape else 0
