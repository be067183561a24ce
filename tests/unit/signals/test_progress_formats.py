"""Every trainer's way to print its progress is understood."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import cases
from trainwarden.signals.progress import LogProgress, ProgressReader

FORMATS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("progress_formats.yaml").read_text(encoding="utf-8"))


def read(log: str) -> LogProgress:
    reader = ProgressReader()
    reader.feed(log.encode())
    reader.finish()
    return reader.progress()


@cases("name", FORMATS)
def test_the_format_is_understood(name: str) -> None:
    progress, expected = read("".join(FORMATS[name]["log"])), FORMATS[name]["expect"]
    found = {field: getattr(progress, field) for field in expected}
    assert {field for field in found if found[field] is None} == {field for field in found if expected[field] is None}
    numbers = {field: float(value) for field, value in expected.items() if value is not None}
    assert {field: found[field] for field in numbers} == pytest.approx(numbers, rel=1e-9)


@cases("loss", ["nan", "NaN", "inf"])
def test_a_loss_that_is_no_number_replaces_the_number(loss: str) -> None:
    progress = read(f"step: 1 loss: 2.5\nstep: 2 loss: {loss}\n")
    assert (progress.step, progress.loss is not None and math.isfinite(progress.loss)) == (2, False)
    assert progress.document()["loss"] is None


@cases(
    "line",
    [
        "Loading checkpoint shards:  75%|███████▌  | 3/4 [00:10<00:03,  3.31s/it]",
        "Map:  40%|████      | 4000/10000 [00:01<00:02, 2890.11 examples/s]",
        "Map (num_proc=8):  40%|████      | 4000/10000 [00:01<00:02, 2890.11 examples/s]",
        "Iter rows:  40%|████      | 4000/10000 [00:01<00:02, 2890.11 rows/s]",
        "Generating train split: 1200 examples [00:00, 9000.11 examples/s]",
        "model-00001-of-00004.safetensors:  12%|█▏        | 598M/4.98G [00:05<00:41, 105MB/s]",
        "Downloading shards:  50%|█████     | 2/4 [00:20<00:20, 10.1s/it]",
        "Evaluating:  50%|█████     | 5/10 [00:20<00:20, 1.01it/s, loss=9.9]",
        "Validation DataLoader 0:  50%|█████     | 5/10 [00:20<00:20, 1.01it/s]",
        "Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:20<00:20, 1.01it/s]",
        "Running tokenizer on dataset:  50%|█████     | 5/10 [00:20<00:20, 1.01it/s]",
        "validation loss at iteration 1000 | lm loss value: 2.1E+00 | lm loss PPL: 8.1E+00 |",
        "Validation logs: val_per_token_loss: 3.0 | val_per_example_loss: 14921.1 |",
        "eval step 5/100 loss 2.5",
        "  learning_rate ................................... 0.00015",
        "learning_rate=2e-05, max_steps=1000, save_steps=500, warmup_steps=100, eval_steps=50, label_smoothing=0.1",
        "  iterations: 20, steps: 300, loss_scale: 512, moe_aux_loss_coeff: 0.01",
        "node01:12:34 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/CUMEM step 4 nSteps 8",
        "slurmstepd: error: *** STEP 1809579.0 ON node001 CANCELLED AT 2021-05-23T08:45:57 ***",
        "srun: error: Unable to create step for job 5777731: Access/permission denied",
        '  File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 3711, in training_step',
        "[INFO] saved /ckpt/model_name=0--val_loss=0.00-step=18-consumed_samples=9728.0-last.ckpt",
        "# nThread 1 minBytes 53687091 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1048576.0, reducing to 524288.0",
        ':::MLLOG {"key": "eval_stop", "value": 17, "metadata": {"step": 99}}',
        ':::MLLOG {"key": "train_loss", "value": ' + "[" * 3000,
    ],
)
def test_other_work_and_settings_are_no_progress(line: str) -> None:
    assert read(line + "\n").document() == {}
