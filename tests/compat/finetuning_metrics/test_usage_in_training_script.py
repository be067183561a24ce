"""A training script with the options of the fine-tuning module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.finetuning_metrics.jobs import HERE, LABELS, MODEL, TITLE, Page, Start, read_if_there
from tests.waiting import wait_until
from trainwarden.stack.ports import free_port

pytestmark = [pytest.mark.seed(TITLE, "Usage in Training Script"), pytest.mark.process]


def command(dataset: Path, output: Path, *more: str) -> list[str]:
    """The command of the script, as its users type it."""
    return [
        sys.executable, str(HERE / "programs/app.py"), "--model-id", MODEL, "--dataset-path", str(dataset),
        "--output-dir", str(output), "--method", "lora", *more,
    ]  # fmt: skip


def test_enable_metrics_and_metrics_port_serve_the_training_while_it_lasts(start: Start, tmp_path: Path) -> None:
    dataset, output, port = tmp_path / "example_dataset.jsonl", tmp_path / "output", free_port()
    # The script waits in it for its next example.
    os.mkfifo(dataset)
    process = start(command(dataset, output, "--enable-metrics", "--metrics-port", str(port)))
    url = f"http://localhost:{port}/metrics"

    def page() -> Page:
        return Page(read_if_there(url))

    with dataset.open("w") as examples:
        wait_until(lambda: page().value("finetuning_job_status", **LABELS) == 1)
        for number in range(1, 4):
            examples.write(json.dumps({"text": f"example {number}"}) + "\n")
            examples.flush()
        wait_until(lambda: page().value("finetuning_training_step", **LABELS) == 3)
        shown = page()
        assert shown.value("finetuning_train_loss", **LABELS, epoch="2") == pytest.approx(0.5234 + 1 / 3)
        assert shown.value("finetuning_training_progress", **LABELS) == 75
        assert shown.value("finetuning_checkpoints_total", **LABELS) == 1
        assert shown.value("finetuning_tokens_per_second", **LABELS) == 2048
    wait_until(lambda: page().value("finetuning_job_status", **LABELS) == 2, "the end is shown to the next scrape")
    assert process.wait(60) == 0


def test_without_enable_metrics_it_trains_just_so(tmp_path: Path) -> None:
    (tmp_path / "example_dataset.jsonl").write_text("{}\n" * 2)
    ended = subprocess.run(
        command(tmp_path / "example_dataset.jsonl", tmp_path / "output"), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads((tmp_path / "output/training_info.json").read_text())["status"] == "Succeeded"
