"""The fourteen metrics: name, type, labels and meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.compat.finetuning_metrics.jobs import LABELS, MODEL, TITLE, Page, page_of, values
from trainwarden_exporter import FineTuningMetricsExporter

pytestmark = pytest.mark.seed(TITLE, "Available Metrics")

# Name, type, and the value that the job below has.
METRICS: list[tuple[str, str, float]] = [
    ("finetuning_job_status", "gauge", 1),
    ("finetuning_job_duration_seconds", "histogram", 90),
    ("finetuning_training_epoch", "gauge", 1),
    ("finetuning_training_step", "gauge", 50),
    ("finetuning_training_progress", "gauge", 25),
    ("finetuning_train_loss", "gauge", 0.5234),
    ("finetuning_learning_rate", "gauge", 2e-4),
    ("finetuning_samples_per_second", "gauge", 4),
    ("finetuning_tokens_per_second", "gauge", 2048),
    ("finetuning_gpu_utilization_percent", "gauge", 80),
    ("finetuning_gpu_memory_used_bytes", "gauge", 10),
    ("finetuning_gpu_memory_total_bytes", "gauge", 40),
    ("finetuning_checkpoints_total", "counter", 1),
    ("finetuning_checkpoint_size_bytes", "histogram", 1000),
]
STATUSES = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 3, "Paused": 4}


@pytest.fixture
def exporter() -> Iterator[FineTuningMetricsExporter]:
    exporter = FineTuningMetricsExporter(port=0)
    exporter.start_server()
    yield exporter
    exporter.stop()


@pytest.fixture
def page(exporter: FineTuningMetricsExporter) -> Page:
    """The page of a job that has reported all there is."""
    exporter.update_job_status("my-job", MODEL, "lora", "Running")
    exporter.update_training_metrics(values())
    exporter.record_checkpoint("my-job", MODEL, 1000)
    exporter.record_job_duration("my-job", MODEL, "lora", 90)
    return page_of(exporter)


def family(name: str) -> str:
    """The name under which the parser keeps a family."""
    return name.removesuffix("_total")


def test_each_name_has_its_type_and_a_help(page: Page) -> None:
    shown = [(name, page.families[family(name)].type) for name, _, _ in METRICS if family(name) in page.families]
    assert shown == [(name, kind) for name, kind, _ in METRICS]
    assert [name for name, _, _ in METRICS if not page.families[family(name)].documentation] == []


def test_each_name_has_the_labels_of_the_job(page: Page) -> None:
    wrong = {
        sample.name: sample.labels
        for name, _, _ in METRICS
        for sample in page.families[family(name)].samples
        if not sample.labels.items() >= LABELS.items() or sample.labels.keys() - LABELS.keys() - {"epoch", "le"}
    }
    assert wrong == {}


def test_train_loss_has_the_epoch_as_label(page: Page) -> None:
    assert page.value("finetuning_train_loss", **LABELS, epoch="1") == 0.5234


def test_each_name_has_the_value_that_was_reported(page: Page) -> None:
    shown = {name: page.value(f"{name}_sum" if kind == "histogram" else name, **LABELS) for name, kind, _ in METRICS}
    assert shown == {name: value for name, _, value in METRICS}


def test_histograms_count_each_job_and_each_checkpoint(exporter: FineTuningMetricsExporter) -> None:
    exporter.update_job_status("my-job", MODEL, "lora", "Running")
    for size in (1e6, 2e9):
        exporter.record_checkpoint("my-job", MODEL, size)
    exporter.record_job_duration("my-job", MODEL, "lora", 90)
    page = page_of(exporter)
    assert page.value("finetuning_checkpoint_size_bytes_count", job_name="my-job") == 2
    assert page.value("finetuning_checkpoint_size_bytes_bucket", job_name="my-job", le="1000000.0") == 1
    assert page.value("finetuning_checkpoint_size_bytes_bucket", job_name="my-job", le="+Inf") == 2
    assert page.value("finetuning_job_duration_seconds_count", **LABELS) == 1
    assert page.value("finetuning_job_duration_seconds_bucket", **LABELS, le="60.0") == 0
    assert page.value("finetuning_job_duration_seconds_bucket", **LABELS, le="300.0") == 1


def test_job_status_is_a_number_for_each_word(exporter: FineTuningMetricsExporter) -> None:
    shown = {}
    for word in STATUSES:
        exporter.update_job_status("my-job", MODEL, "lora", word)
        shown[word] = page_of(exporter).value("finetuning_job_status", **LABELS)
    assert shown == STATUSES


def test_progress_is_a_percentage_from_0_to_100(exporter: FineTuningMetricsExporter) -> None:
    shown = []
    for step in (0, 50, 200, 300):
        exporter.update_training_metrics(values(current_step=step))
        shown.append(page_of(exporter).value("finetuning_training_progress", **LABELS))
    assert shown == [0, 25, 100, 100]


def test_a_new_epoch_ends_the_series_of_the_loss_before(exporter: FineTuningMetricsExporter) -> None:
    for epoch in (1, 2):
        exporter.update_training_metrics(values(current_epoch=epoch))
    assert page_of(exporter).value("finetuning_train_loss", **LABELS) == 0.5234
    assert page_of(exporter).value("finetuning_train_loss", **LABELS, epoch="2") == 0.5234


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a metric has neither HELP nor TYPE before its first value"
)
def test_each_name_is_on_the_page_before_the_first_value(exporter: FineTuningMetricsExporter) -> None:
    text = page_of(exporter).text
    missing = [
        name for name, kind, _ in METRICS if f"# HELP {name} " not in text or f"# TYPE {name} {kind}\n" not in text
    ]
    assert missing == []


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a loss of NaN takes the series from the page, and no line says so"
)
def test_a_loss_of_nan_is_shown_or_said(exporter: FineTuningMetricsExporter, caplog: pytest.LogCaptureFixture) -> None:
    exporter.update_training_metrics(values())
    exporter.update_training_metrics(values(train_loss=math.nan))
    shown = page_of(exporter).value("finetuning_train_loss", **LABELS)
    assert (shown is not None and math.isnan(shown)) or "nan" in caplog.text.lower()
