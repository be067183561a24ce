"""A callback for the Trainer of Hugging Face's transformers."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainwarden.integrations.spokesman import Spokesman, harmless

_FRAMEWORK = "transformers"
_LAST_WRITER_SECONDS = 5.0
_POLL_SECONDS = 0.05


class TrainwardenCallback(TrainerCallback):  # type: ignore[misc]  # transformers is absent where types are checked
    """Tells the run's record what a `Trainer` does: `Trainer(callbacks=[TrainwardenCallback("llama-sft-7")])`.

    It speaks for the run in progress; where there is none it begins one when training begins, which may raise
    `RunRefused`, and ends it when training ends. Nothing raises in between. Every rank needs one.

    Args:
        run_id: of the run to begin; `TRAINWARDEN_RUN_ID` if None.
        model, method, dir, s3, thresholds: as in `trainwarden.run()`; the model's name is found if None.
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
        self._says = Spokesman(run_id, {name: value for name, value in options.items() if value is not None})
        self._tokens = 0
        self._saved: tuple[str, int] | None = None

    def resume_checkpoint(self) -> str | None:
        """What to give to `trainer.train(resume_from_checkpoint=…)`; begins the run where none is in progress.

        Raises:
            RunRefused: it must not begin.
        """
        return self._says.begin(_FRAMEWORK).resume_checkpoint()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Begin the run, unless one is in progress."""
        self._says.begin(_FRAMEWORK, model=_name(model))
        self._begin(state)

    @harmless
    def _begin(self, state: Any) -> None:
        self._says.expect(state.max_steps)
        self._tokens = state.num_input_tokens_seen
        self._saved = None

    @harmless
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the epoch."""
        if self._says.run:
            self._says.run.epoch(int(state.epoch or 0))

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Whatever was between two steps is over."""
        self._says.leave()

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step; what comes next is known already."""
        # A step of all ranks is over, so all of them have written their part of the checkpoint before it.
        self._report_checkpoint()
        tokens, self._tokens = state.num_input_tokens_seen - self._tokens, state.num_input_tokens_seen
        self._says.step(state.global_step, tokens=tokens or None, samples=_samples(args, state), epoch=state.epoch)
        self._announce(control)

    @harmless
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """What comes next is known already."""
        self._announce(control)

    def _announce(self, control: Any) -> None:
        # There is no hook before an evaluation or a checkpoint.
        if control.should_evaluate:
            self._says.enter("eval")
        elif control.should_save:
            self._says.enter("checkpoint")

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Report the step again, with what was averaged over the steps up to it."""
        values = {name: _number(logs.get(name)) for name in ("loss", "learning_rate", "grad_norm")}
        # What an evaluation or the end logs is none of these.
        if values["loss"] is not None:
            self._says.step(state.global_step, epoch=state.epoch, **values)

    @harmless
    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation that nobody announced, `trainer.evaluate()` for one, has begun."""
        self._says.enter("eval")

    @harmless
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The evaluation is over."""
        self._says.leave()
        if control.should_save:
            self._says.enter("checkpoint")

    @harmless
    def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **__: Any) -> None:
        """The prediction is over."""
        self._says.leave()

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """This rank has written its part of a checkpoint."""
        self._says.leave()
        self._saved = (os.path.join(args.output_dir, f"checkpoint-{state.global_step}"), state.global_step)  # noqa: PTH118  # a remote address may be no Path
        if args.world_size == 1:
            self._report_checkpoint()

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the run if it was begun here."""
        self._wait_for_last_writer(args)
        self._report_checkpoint()
        self._says.end()

    @harmless
    def _wait_for_last_writer(self, args: Any) -> None:
        """No step follows that would tell; each rank's generator state is the last that it writes."""
        if self._saved is None or args.save_only_model or not args.should_save:
            return
        deadline = time.monotonic() + _LAST_WRITER_SECONDS
        while len(list(Path(self._saved[0]).glob("rng_state*.pth"))) < args.world_size and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _report_checkpoint(self) -> None:
        if self._saved and self._says.run:
            self._says.run.checkpoint_saved(*self._saved)
            self._saved = None


def _name(model: Any) -> str | None:
    given = getattr(getattr(model, "config", None), "_name_or_path", None)
    return given or (None if model is None else type(model).__name__)


def _samples(args: Any, state: Any) -> int:
    """How many one step takes, over all ranks; the last of an epoch may take fewer."""
    per_device: int = state.train_batch_size or args.train_batch_size
    return per_device * int(args.gradient_accumulation_steps) * int(args.world_size)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
