"""Following the file of a training: late, half-written, replaced, gone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.runs_tree import samples_of
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import replace_file, write_json
from trainwarden_exporter.collectors.gpu import metrics as gpu_metrics
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning.collector import TrainingInfoCollector
from trainwarden_exporter.finetuning.job import JobLabels
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask

Show = Callable[..., float | None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training_info.json"


@pytest.fixture
def show(path: Path) -> Show:
    """Looks at the file once more; returns the value of a series."""
    follower = TrainingInfoCollector(path, JobLabels("j", "m", "lora"))
    return lambda name, **labels: value(follower, name, **labels)


def value(follower: TrainingInfoCollector, name: str, **labels: str) -> float | None:
    found = samples_of(encode_text(follower.collect()).decode())
    named = {"job_name": "j", "model_id": "m", "method": "lora", **labels}
    return found.get(f"finetuning_{name}", {}).get(frozenset(named.items()))


def write(path: Path, **document: Any) -> None:
    path.write_text(json.dumps(document))


def test_a_file_that_is_not_there_yet_is_a_job_that_has_not_begun(path: Path, show: Show) -> None:
    assert show("job_status") == 0
    assert show("training_step") is None
    assert show("info_file_errors_total", reason="missing") == 0
    write(path, step=3)
    assert (show("job_status"), show("training_step")) == (1, 3)


def test_each_change_is_seen_whether_written_in_place_or_replaced(path: Path, show: Show) -> None:
    for step in (1, 2):
        write(path, step=step)
        assert show("training_step") == step
    replace_file(path, b'{"step": 3}')
    assert show("training_step") == 3


def test_a_half_written_file_leaves_what_was_stated_last_and_is_counted(path: Path, show: Show) -> None:
    write(path, step=3, train_loss=0.5)
    show("training_step")
    for text in ('{"step": 4, "train_lo', "", "7"):
        path.write_text(text)
        assert show("training_step") == 3
    assert show("info_file_errors_total", reason="unreadable") == 4
    write(path, step=5)
    assert show("training_step") == 5
    assert show("info_file_errors_total", reason="unreadable") == 4


def test_a_file_that_is_gone_leaves_what_it_stated_and_when(path: Path, show: Show) -> None:
    write(path, step=3)
    os.utime(path, (1e9, 1e9))
    assert show("info_file_timestamp_seconds") == 1e9
    path.unlink()
    assert show("training_step") == 3
    assert show("info_file_timestamp_seconds") == 1e9
    assert show("info_file_errors_total", reason="missing") == 3


def test_what_cannot_be_looked_at_is_named_as_it_was_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    follower = TrainingInfoCollector(tmp_path / ("x" * 300), JobLabels("j", "m", "lora"))
    assert value(follower, "info_file_errors_total", reason="unreadable") == 1
    (record,) = caplog.records
    assert record.getMessage().endswith("xxx'")


def test_what_is_no_file_is_not_waited_for(path: Path, show: Show) -> None:
    os.mkfifo(path)
    assert show("info_file_errors_total", reason="unreadable") == 1


def test_an_odd_value_is_counted_and_costs_no_other(path: Path, show: Show) -> None:
    write(path, step=3, loss="much")
    assert show("training_step") == 3
    assert show("info_file_errors_total", reason="unexpected_value") == 2
    os.utime(path, (1e9, 1e9))
    counted = show("info_file_errors_total", reason="unexpected_value")
    assert show("info_file_errors_total", reason="unexpected_value") == counted


def test_an_unchanged_file_is_not_read_again(path: Path, show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, step=3)
    os.utime(path, (1e9, 1e9))
    assert show("training_step") == 3
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was read again"))
    assert show("training_step") == 3


def test_the_end_of_a_job_and_each_of_its_checkpoints_are_observed_once(path: Path, show: Show) -> None:
    write(path, step=3, checkpoints=[{"step": 1, "size_bytes": 5}])
    assert show("job_duration_seconds_count") == 0
    saved = [{"step": 1, "size_bytes": 5}, {"step": 2, "size_bytes": 6}]
    for _ in range(3):
        write(path, step=3, train_runtime=100, checkpoints=saved)
        assert show("job_duration_seconds_sum") == 100
    assert show("job_status") == 2
    assert show("checkpoint_size_bytes_sum") == 11
    write(path, step=3, train_runtime=100, checkpoints=saved[1:])
    assert show("checkpoints_total") == 2


def test_a_log_of_json_lines_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "trainer_log.jsonl"
    log.write_text('{"current_steps": 1, "loss": 2.0}\n{"current_steps": 2, "loss": 1.5}\n{"current_st')
    assert value(TrainingInfoCollector(log, JobLabels("j", "m", "lora")), "training_step") == 2


def test_of_a_folder_the_state_of_the_newest_checkpoint_is_read(tmp_path: Path) -> None:
    follower = TrainingInfoCollector(tmp_path, JobLabels("j", "m", "lora"))
    assert value(follower, "job_status") == 0
    for step in (900, 1000):
        (tmp_path / f"checkpoint-{step}").mkdir()
        write(tmp_path / f"checkpoint-{step}" / "trainer_state.json", global_step=step)
        assert value(follower, "training_step") == step
    write(tmp_path / "training_info.json", step=1001)
    assert value(follower, "training_step") == 1001


def test_a_run_record_is_read_as_the_exporter_reads_it(tmp_path: Path) -> None:
    start, now = to_iso(1_700_000_000), to_iso(1_700_000_600)
    metadata = {"run_id": "r", "status": "running", "phase": "idle", "start_time": start, "last_update": now}
    write_json(tmp_path / "metadata.json", metadata)
    saved = {"path": "/c", "step": 2, "time": now, "size_bytes": 8, "count": 3}
    write_json(tmp_path / "progress.json", {"step": 5, "total_steps": 20, "loss": 0.5, "epoch": 2, "checkpoint": saved})
    follower = TrainingInfoCollector(tmp_path, JobLabels("j", "m", "lora"))
    assert value(follower, "job_status") == 4
    assert value(follower, "training_progress") == 25
    assert value(follower, "train_loss", epoch="2") == 0.5
    assert value(follower, "checkpoints_total") == 3
    assert value(follower, "checkpoint_size_bytes_sum") == 8
    write_json(tmp_path / "metadata.json", {**metadata, "status": "succeeded", "end_time": now})
    assert value(follower, "job_duration_seconds_sum") == 600


def test_the_gpus_of_the_node_are_the_jobs_while_it_runs(path: Path) -> None:
    families = Families()
    for gpu, ratio in enumerate((0.25, 0.75)):
        families.add(gpu_metrics.GPU_UTILIZATION_RATIO, ratio, gpu=str(gpu), uuid=f"G{gpu}")
    gpus = Sampler(SampleTask("nvidia", families.collected, 1, 1))
    gpus.sample()
    follower = TrainingInfoCollector(path, JobLabels("j", "m", "lora"), [gpus])
    write(path, step=1)
    assert value(follower, "gpu_utilization_percent") == 50
    assert value(follower, "gpu_memory_used_bytes") is None
    write(path, status="failed")
    assert value(follower, "gpu_utilization_percent") is None
