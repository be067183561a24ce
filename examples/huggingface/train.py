"""Trains a tiny GPT-2 on a counting task with the Trainer of transformers, and reports to Trainwarden.

    python examples/huggingface/train.py --output-dir /tmp/counting

and with `-m torch.distributed.run --standalone --nproc-per-node 2` behind `python` it does so as two ranks.

Nothing is downloaded. Started again with the same TRAINWARDEN_RUN_ID it resumes from its last complete checkpoint.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import trainwarden
from trainwarden.integrations.huggingface import TrainwardenCallback

_LENGTH = 16
_TOKENS = 64


def main() -> None:
    """Train, in a block that sees how it ends."""
    options = _options()
    with trainwarden.run(framework="transformers", model="gpt2, tiny", method="pretraining") as run:
        trainer = _trainer(options)
        with run.phase("load"):
            checkpoint = run.resume_checkpoint()
        trainer.train(resume_from_checkpoint=checkpoint)


def _trainer(options: argparse.Namespace) -> Trainer:
    config = GPT2Config(
        vocab_size=_TOKENS, n_positions=_LENGTH, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    arguments = TrainingArguments(
        output_dir=str(options.output_dir),
        max_steps=options.steps,
        # Without it ranks that find no GPU train apart from each other.
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=8,
        logging_steps=5,
        save_steps=options.save_steps,
        eval_strategy="steps",
        eval_steps=options.save_steps,
        # A loss that is NaN is to be seen as that, not replaced by an average.
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="all",
        report_to=[],
        disable_tqdm=True,
    )
    return Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=_counting(512),
        eval_dataset=_counting(16),
        callbacks=[TrainwardenCallback()],
    )


def _counting(rows: int) -> list[dict[str, Any]]:
    samples = ((torch.arange(_LENGTH) + start) % _TOKENS for start in range(rows))
    return [{"input_ids": sample, "labels": sample} for sample in samples]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--output-dir", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
