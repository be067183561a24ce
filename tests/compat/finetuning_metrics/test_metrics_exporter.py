"""The class that a training script makes and starts."""

from __future__ import annotations

import inspect
import urllib.request
from collections.abc import Iterator

import pytest

from tests.compat.finetuning_metrics.jobs import LABELS, MODEL, TITLE, page_of, values
from trainwarden.stack.ports import free_port
from trainwarden_exporter import FineTuningMetricsExporter, TrainingMetrics

pytestmark = pytest.mark.seed(TITLE, "Metrics Exporter")


@pytest.fixture
def exporter() -> Iterator[FineTuningMetricsExporter]:
    exporter = FineTuningMetricsExporter(port=0)
    exporter.start_server()
    yield exporter
    exporter.stop()


def test_start_server_serves_the_port_that_was_given_in_the_text_format() -> None:
    exporter = FineTuningMetricsExporter(port=(port := free_port()))
    exporter.start_server()
    try:
        exporter.update_job_status("my-job", MODEL, "lora", "Running")
        with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=30) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
    finally:
        exporter.stop()
    assert kind.startswith("text/plain; version=0.0.4")
    assert f'finetuning_job_status{{job_name="my-job",model_id="{MODEL}",method="lora"}} 1.0\n' in text


def test_port_is_8000_by_default_and_may_be_given_by_position() -> None:
    parameters = inspect.signature(FineTuningMetricsExporter).parameters
    assert (next(iter(parameters)), parameters["port"].default) == ("port", 8000)


def test_it_is_reached_from_other_machines_as_before(exporter: FineTuningMetricsExporter) -> None:
    assert (exporter.exporter.bound or "").rpartition(":")[0] in ("0.0.0.0", "[::]", "")


def test_every_call_by_name_and_by_position(exporter: FineTuningMetricsExporter) -> None:
    exporter.update_job_status(job_name="my-job", model_id=MODEL, method="lora", status="Running")
    exporter.update_training_metrics(values())
    exporter.record_checkpoint("my-job", MODEL, 1000)
    exporter.record_checkpoint(job_name="my-job", model_id=MODEL, checkpoint_size=3000)
    exporter.record_job_duration("my-job", MODEL, "lora", 30)
    page = page_of(exporter)
    shown = [
        page.value(f"finetuning_{name}", **LABELS)
        for name in ("job_status", "training_progress", "checkpoints_total", "checkpoint_size_bytes_sum")
    ]
    assert shown == [1, 25, 2, 4000]
    assert page.value("finetuning_job_duration_seconds_sum", **LABELS) == 30


def test_training_metrics_are_taken_by_position(exporter: FineTuningMetricsExporter) -> None:
    exporter.update_training_metrics(TrainingMetrics("my-job", MODEL, "lora", 1, 3, 50, 200, 0.5234, 2e-4))
    page = page_of(exporter)
    assert page.value("finetuning_training_step", **LABELS) == 50
    assert page.value("finetuning_learning_rate", **LABELS) == 2e-4
    assert page.value("finetuning_gpu_utilization_percent", **LABELS) is None, "unknown is absent"


def test_several_jobs_share_one_exporter(exporter: FineTuningMetricsExporter) -> None:
    exporter.update_job_status("my-job", MODEL, "lora", "Running")
    exporter.update_job_status("other", MODEL, "full", "Paused")
    page = page_of(exporter)
    assert page.value("finetuning_job_status", job_name="my-job", method="lora") == 1
    assert page.value("finetuning_job_status", job_name="other", method="full") == 4
