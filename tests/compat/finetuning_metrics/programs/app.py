"""Fine-tunes a model, with the options and the metrics of the fine-tuning module: only the import differs.

python app.py --model-id Qwen/Qwen2.5-7B-Instruct --dataset-path example_dataset.jsonl --output-dir ./output \
  --method lora --enable-metrics --metrics-port 8000

One line of the data set is one step. It leaves training_info.json, a checkpoint of each epoch and an AIM profile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwarden_exporter import FineTuningMetricsExporter, TrainingMetrics

STEPS_PER_EPOCH = 2
EPOCHS = 2


class Job:
    """A fine-tuning job. Without an exporter it trains just so."""

    def __init__(self, options: argparse.Namespace, exporter: FineTuningMetricsExporter | None) -> None:
        self.labels = (options.job_name, options.model_id, options.method)
        self.output: Path = options.output_dir
        self.exporter = exporter
        self.losses: list[dict[str, Any]] = []

    def status(self, status: str) -> None:
        if self.exporter is not None:
            self.exporter.update_job_status(*self.labels, status)

    def step(self, number: int, loss: float) -> None:
        epoch = 1 + (number - 1) // STEPS_PER_EPOCH
        self.losses.append({"step": number, "loss": loss, "learning_rate": 2e-4})
        if self.exporter is not None:
            self.exporter.update_training_metrics(
                TrainingMetrics(
                    *self.labels,
                    current_epoch=epoch,
                    total_epochs=EPOCHS,
                    current_step=number,
                    total_steps=EPOCHS * STEPS_PER_EPOCH,
                    train_loss=loss,
                    learning_rate=2e-4,
                    samples_per_second=4.0,
                    tokens_per_second=2048.0,
                )
            )
        if number % STEPS_PER_EPOCH == 0:
            self.save(number)

    def save(self, step: int) -> None:
        folder = self.output / f"checkpoint_{step}"
        folder.mkdir(parents=True)
        (folder / "checkpoint_info.json").write_text(json.dumps({"step": step}))
        (folder / "training_state.json").write_text(json.dumps({"global_step": step}))
        if self.exporter is not None:
            self.exporter.record_checkpoint(*self.labels[:2], checkpoint_size=1_000_000)

    def finish(self, seconds: float) -> None:
        info = {"status": "Succeeded", "log_history": self.losses, "train_runtime": seconds}
        (self.output / "training_info.json").write_text(json.dumps(info))
        profile = {"model_id": self.labels[1], "memory_requirement_gb": 20.0}
        (self.output / "aim_profile.json").write_text(json.dumps(profile))
        if self.exporter is not None:
            self.exporter.record_job_duration(*self.labels, seconds)
        self.status("Succeeded")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The examples of the data set, as they come."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-id", required=True)
    parser.add_argument("--dataset-path", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--job-name", default="my-job")
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--metrics-port", type=int, default=8000)
    options = parser.parse_args()
    exporter = FineTuningMetricsExporter(port=options.metrics_port) if options.enable_metrics else None
    if exporter is not None:
        exporter.start_server()
    started = time.monotonic()
    job = Job(options, exporter)
    job.status("Running")
    for number, _row in enumerate(rows(options.dataset_path), 1):
        job.step(number, 0.5234 + 1 / number)
    job.finish(time.monotonic() - started)
