"""A callback for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainwarden.integrations.callback_adapter import CallbackAdapter, never_raises

_FRAMEWORK = "transformers"
_LAST_WRITER_SECONDS = 5.0
_POLL_SECONDS = 0.05


class TrainwardenCallback(TrainerCallback):  # type: ignore[misc]  # transformers is absent where types are checked
    """Records what a `Trainer` does: `Trainer(callbacks=[TrainwardenCallback("llama-sft-7")])`.

    It reports to the run in progress. Without one it begins a run when training begins, which may raise `RunRefused`,
    and ends it when training ends. Nothing raises in between. Every rank needs a callback.

    Args:
        run_id: name of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        model, method, dir, s3, thresholds: as in `trainwarden.run()`; the model's own name if `model` is None.
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
        options = {"model": model, "method": method, "dir": dir, "s3": s3, "thresholds": thresholds}
        self._adapter = CallbackAdapter(run_id, {name: value for name, value in options.items() if value is not None})
        self._tokens = 0
        self._saved: tuple[str, int] | None = None

    def resume_checkpoint(self) -> str | None:
        """Return the argument for `trainer.train(resume_from_checkpoint=…)`; begins the run where none is in progress.

        Raises:
            RunRefused: the run must not begin.
        """
        return self._adapter.begin(_FRAMEWORK).resume_checkpoint()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Begin the run, unless one is in progress."""
        self._adapter.begin(_FRAMEWORK, model=_name(model))
        self._begin(args, state)

    @never_raises
    def _begin(self, args: Any, state: Any) -> None:
        if self._adapter.run:
            self._adapter.run.note("training_configuration", batch_size=_batch_size(args, state))
        self._adapter.expect(state.max_steps)
        self._tokens = state.num_input_tokens_seen
        self._saved = None

    @never_raises
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the epoch."""
        if self._adapter.run:
            self._adapter.run.epoch(int(state.epoch or 0))

    @never_raises
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the phase before an evaluation or a checkpoint."""
        self._adapter.leave()

    @never_raises
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step, and enter the phase that follows it."""
        # All ranks have finished a step since the checkpoint, so all have written their parts of it.
        self._report_checkpoint()
        tokens, self._tokens = state.num_input_tokens_seen - self._tokens, state.num_input_tokens_seen
        self._adapter.step(state.global_step, tokens=tokens or None, samples=_samples(args, state), epoch=state.epoch)
        self._enter_next_phase(control)

    @never_raises
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Enter the phase that follows the epoch."""
        self._enter_next_phase(control)

    def _enter_next_phase(self, control: Any) -> None:
        # There is no hook before an evaluation or a checkpoint.
        if control.should_evaluate:
            self._adapter.enter("eval")
        elif control.should_save:
            self._adapter.enter("checkpoint")

    @never_raises
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Report the step again, with the averages that the trainer logs."""
        values = {name: _number(logs.get(name)) for name in ("loss", "learning_rate", "grad_norm")}
        # Without a loss these are the values of an evaluation or of the end.
        if values["loss"] is not None:
            self._adapter.step(state.global_step, epoch=state.epoch, **values)

    @never_raises
    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Enter the phase eval, also for an evaluation outside of training, such as `trainer.evaluate()`."""
        self._adapter.enter("eval")

    @never_raises
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the phase eval."""
        self._adapter.leave()
        if control.should_save:
            self._adapter.enter("checkpoint")

    @never_raises
    def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **__: Any) -> None:
        """Leave the phase eval after a prediction."""
        self._adapter.leave()

    @never_raises
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remember the checkpoint of which this rank has written its part."""
        self._adapter.leave()
        self._saved = (os.path.join(args.output_dir, f"checkpoint-{state.global_step}"), state.global_step)  # noqa: PTH118  # a remote address may be no Path
        if args.world_size == 1:
            self._report_checkpoint()

    @never_raises
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the run if this callback began it."""
        self._wait_for_last_writer(args)
        self._report_checkpoint()
        self._adapter.end()

    @never_raises
    def _wait_for_last_writer(self, args: Any) -> None:
        """Wait until the last checkpoint is complete: no step follows. Each rank writes its generator state last."""
        if self._saved is None or args.save_only_model or not args.should_save:
            return
        deadline = time.monotonic() + _LAST_WRITER_SECONDS
        while len(list(Path(self._saved[0]).glob("rng_state*.pth"))) < args.world_size and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _report_checkpoint(self) -> None:
        if self._saved and self._adapter.run:
            self._adapter.run.checkpoint_saved(*self._saved)
            self._saved = None


def _name(model: Any) -> str | None:
    given = getattr(getattr(model, "config", None), "_name_or_path", None)
    return given or (None if model is None else type(model).__name__)


def _batch_size(args: Any, state: Any) -> int:
    """Return the batch size per device, which the Trainer may have lowered by itself."""
    return int(state.train_batch_size or args.train_batch_size)


def _samples(args: Any, state: Any) -> int:
    """Return the samples of one step over all ranks; the last step of an epoch may have fewer."""
    return _batch_size(args, state) * int(args.gradient_accumulation_steps) * int(args.world_size)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
