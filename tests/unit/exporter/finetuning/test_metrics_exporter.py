"""Metrics out of the process that trains: right, from any thread, and never a reason for it to end."""

from __future__ import annotations

import math
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import prometheus_client
import pytest

from tests.cases import cases
from tests.unit.exporter.runs_tree import samples_of
from trainwarden_exporter import FineTuningMetricsExporter, MetricsExporter
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.finetuning.metrics_exporter import JobMetrics

JOB = {"job_name": "j", "model_id": "m", "method": "lora"}


def job() -> MetricsExporter:
    return MetricsExporter(port=0, job_name="j", model_id="m", method="lora")


def value(exporter: MetricsExporter, name: str, **labels: str) -> float | None:
    found = samples_of(encode_text(exporter.collect()).decode())
    return found.get(f"finetuning_{name}", {}).get(frozenset({**JOB, **labels}.items()))


def page(exporter: MetricsExporter) -> str:
    with urllib.request.urlopen(f"http://{exporter.bound}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_what_is_written_is_served_at_once() -> None:
    with job() as exporter:
        assert "finetuning_job_status{" in page(exporter)
        exporter.update_job_status("Running")
        exporter.update_progress(epoch=2, step=30, total_steps=120)
        exporter.update_loss(0.5234)
        found = samples_of(page(exporter))
    labels = frozenset(JOB.items())
    assert found["finetuning_job_status"][labels] == 1
    assert found["finetuning_training_progress"][labels] == 25
    assert found["finetuning_train_loss"] == {frozenset({*JOB.items(), ("epoch", "2")}): 0.5234}


def test_every_setter_reaches_its_series() -> None:
    exporter = job()
    exporter.update_progress(epoch=1.5, step=7, progress=40)
    exporter.update_learning_rate(3e-4)
    exporter.update_throughput(samples_per_second=8, tokens_per_second=4096)
    exporter.update_gpu(utilization_percent=90, memory_used_bytes=10, memory_total_bytes=80)
    for size in (100, 200, None):
        exporter.checkpoint_saved(size)
    exporter.record_job_duration(90)
    shown = {
        name: value(exporter, name)
        for name in (
            "training_epoch", "training_step", "training_progress", "learning_rate", "samples_per_second",
            "tokens_per_second", "gpu_utilization_percent", "gpu_memory_used_bytes", "gpu_memory_total_bytes",
            "checkpoints_total", "checkpoint_size_bytes_count", "checkpoint_size_bytes_sum",
            "job_duration_seconds_count", "job_duration_seconds_sum",
        )
    }  # fmt: skip
    assert list(shown.values()) == [1.5, 7, 40, 3e-4, 8, 4096, 90, 10, 80, 3, 2, 300, 1, 90]
    assert value(exporter, "job_duration_seconds_bucket", le="300.0") == 1
    assert value(exporter, "job_duration_seconds_bucket", le="60.0") == 0


ODD: list[Callable[[JobMetrics], Any]] = [
    lambda job: job.update_job_status("levitating"),
    lambda job: job.update_job_status(None),  # type: ignore[arg-type]  # odd on purpose, as those below
    lambda job: job.update_progress(epoch="two"),  # type: ignore[arg-type]
    lambda job: job.update_loss(object()),  # type: ignore[arg-type]
    lambda job: job.update_learning_rate([1]),  # type: ignore[arg-type]
    lambda job: job.checkpoint_saved("large"),  # type: ignore[arg-type]
    lambda job: job.record_job_duration(-1),
    lambda job: job.update_gpu(memory_used_bytes=math.inf),
]


@cases("odd", ODD)
def test_an_odd_value_neither_ends_the_training_nor_changes_the_page(odd: Callable[[JobMetrics], Any]) -> None:
    exporter = job()
    exporter.update_progress(epoch=1, step=2)
    before = encode_text(exporter.collect())
    odd(exporter)
    assert encode_text(exporter.collect()) == before


def test_counters_begin_before_their_first_event() -> None:
    exporter = job()
    shown = [value(exporter, name) for name in ("checkpoints_total", "checkpoint_size_bytes_count")]
    assert shown == [0, 0]
    assert value(exporter, "job_duration_seconds_count") == 0


def test_it_listens_on_loopback_and_on_every_address_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []
    for variable in ("", "10.0.0.1"):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", variable)
        with MetricsExporter(port=0) as exporter:
            bound.append((exporter.bound or "").rpartition(":")[0])
    assert bound[0] == "127.0.0.1"
    assert bound[1] != "127.0.0.1"


def test_an_odd_value_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    exporter = job()
    for _ in range(3):
        exporter.update_learning_rate("fast")  # type: ignore[arg-type]  # odd on purpose
    assert [record.getMessage() for record in caplog.records] == [
        "update_learning_rate of job j: 'fast' is not a number"
    ]


def test_a_loss_that_is_not_a_number_takes_the_series_away() -> None:
    exporter = job()
    exporter.update_loss(2.0, epoch=1)
    assert value(exporter, "train_loss", epoch="1") == 2
    exporter.update_loss(math.nan)
    assert value(exporter, "train_loss", epoch="1") is None
    assert value(exporter, "training_epoch") == 1


def test_a_tensor_is_the_number_that_it_holds() -> None:
    class Tensor:
        def item(self) -> float:
            return 0.25

    exporter = job()
    exporter.update_loss(Tensor())  # type: ignore[arg-type]  # what trainings pass
    assert b" 0.25\n" in encode_text(exporter.collect())


def test_a_port_that_is_taken_is_no_reason_to_end_a_training(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        exporter = MetricsExporter(port=taken.getsockname()[1])
        assert exporter.start_server() is False
    assert "no metrics on 127.0.0.1" in caplog.text
    assert exporter.start_server() is True
    assert exporter.start_server() is True
    exporter.stop()
    assert exporter.bound is None
    exporter.stop()


def test_threads_do_not_lose_each_others_counts() -> None:
    exporter = job()

    def save() -> None:
        for _ in range(500):
            exporter.checkpoint_saved(1)
            exporter.update_progress(step=1)

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(exporter, "checkpoints_total") == 4000
    assert value(exporter, "checkpoint_size_bytes_count") == 4000


def test_label_values_are_escaped() -> None:
    name = 'a"b\\c\nd} 1'
    exporter = MetricsExporter(port=0, job_name=name)
    exporter.update_job_status("Running")
    (labels,) = samples_of(encode_text(exporter.collect()).decode())["finetuning_job_status"]
    assert dict(labels)["job_name"] == 'a"b\\c d} 1'


def test_a_registry_of_prometheus_client_shows_the_same() -> None:
    registry = prometheus_client.CollectorRegistry()
    exporter = MetricsExporter(job_name="j", model_id="m", method="lora", registry=registry)
    exporter.update_job_status("Succeeded")
    exporter.checkpoint_saved(5)
    assert registry.get_sample_value("finetuning_job_status", JOB) == 2
    assert registry.get_sample_value("finetuning_checkpoints_total", JOB) == 1
    found = samples_of(prometheus_client.generate_latest(registry).decode())
    assert found["finetuning_checkpoint_size_bytes_sum"][frozenset(JOB.items())] == 5


def test_nothing_is_shown_of_a_job_that_is_named_nowhere() -> None:
    exporter = MetricsExporter()
    assert encode_text(exporter.collect()) == b""
    exporter.update_job_status("Running")
    assert b'finetuning_job_status{job_name="' in encode_text(exporter.collect())


def test_what_is_no_training_metrics_is_logged_and_does_not_end_the_training(caplog: pytest.LogCaptureFixture) -> None:
    known = FineTuningMetricsExporter(port=0)
    known.update_training_metrics(None)  # type: ignore[arg-type]  # odd on purpose
    assert "update_training_metrics of job job: 'NoneType' object has no attribute 'job_name'" in caplog.text
    assert encode_text(known.exporter.collect()) == encode_text(MetricsExporter(port=0).collect())
