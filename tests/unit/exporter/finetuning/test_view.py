"""What --compat.finetuning makes of the runs that are on the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases import cases
from tests.unit.exporter.finetuning.finetuning_tree import FinetuningTree
from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden.record.clock import to_iso

JOB = {"job_name": "r", "model_id": "Qwen/Qwen2.5-7B", "method": "lora"}


def running(tree: FinetuningTree, run_id: str = "r", **keys: Any) -> None:
    tree.runs.metadata(run_id, **{"model": JOB["model_id"], "method": JOB["method"], **keys})


def test_a_run_has_every_series_by_its_known_name_and_labels(tree: FinetuningTree) -> None:
    running(tree)
    checkpoint = {"path": "/c/100", "step": 100, "time": to_iso(NOW - 60), "size_bytes": 3_000_000, "count": 2}
    tree.runs.progress("r", epoch=1.5, samples_per_second=32.0, tokens_per_second=9000.0, checkpoint=checkpoint)
    tree.gpu(0.5, 1.0)
    job = frozenset(JOB.items())
    found = tree.samples()
    assert {name: values[job] for name, values in found.items() if job in values} == {
        "finetuning_job_status": 1,
        "finetuning_job_duration_seconds_count": 0,
        "finetuning_job_duration_seconds_sum": 0,
        "finetuning_training_epoch": 1.5,
        "finetuning_training_step": 120,
        "finetuning_training_progress": 12,
        "finetuning_learning_rate": 0.0003,
        "finetuning_samples_per_second": 32,
        "finetuning_tokens_per_second": 9000,
        "finetuning_gpu_utilization_percent": 75,
        "finetuning_gpu_memory_used_bytes": 20,
        "finetuning_gpu_memory_total_bytes": 160,
        "finetuning_checkpoints_total": 2,
        "finetuning_checkpoint_size_bytes_count": 1,
        "finetuning_checkpoint_size_bytes_sum": 3_000_000,
    }
    assert found["finetuning_train_loss"] == {frozenset({*JOB.items(), ("epoch", "1")}): 2.5}


def test_the_loss_of_an_epoch_that_is_over_is_gone(tree: FinetuningTree) -> None:
    running(tree)
    for epoch in (1, 2):
        tree.runs.progress("r", epoch=epoch)
        tree.text()
    assert {dict(labels)["epoch"] for labels in tree.samples()["finetuning_train_loss"]} == {"2"}


@cases(
    ("status", "phase", "number"),
    [("pending", "init", 0), ("running", "train", 1), ("succeeded", "done", 2), ("failed", "train", 3),
     ("cancelled", "train", 3), ("running", "idle", 4), ("failed", "idle", 3)],
    tree=lambda folder: FinetuningTree(RunsTree(folder)),
)  # fmt: skip
def test_the_status_is_the_number_that_dashboards_know(
    tree: FinetuningTree, status: str, phase: str, number: int
) -> None:
    running(tree, status=status, phase=phase)
    assert tree.value("job_status") == number


def test_each_attempt_is_observed_once_at_its_end(tree: FinetuningTree) -> None:
    running(tree)
    assert tree.value("job_duration_seconds_count") == 0
    running(tree, status="failed", end_time=to_iso(NOW))
    for _ in range(3):
        tree.runs.rank("r", 0)  # something is read anew
        assert tree.value("job_duration_seconds_sum") == 600
    running(tree, attempt=1, attempt_key="local:77-1:1", attempt_start_time=to_iso(NOW))
    assert tree.value("job_duration_seconds_count") == 1
    tree.runs.now += 100
    running(
        tree, attempt=1, attempt_key="local:77-1:1", status="succeeded",
        attempt_start_time=to_iso(NOW), end_time=to_iso(NOW + 100),
    )  # fmt: skip
    assert tree.value("job_duration_seconds_count") == 2
    assert tree.value("job_duration_seconds_sum") == 700
    assert tree.value("job_duration_seconds_bucket", le="300.0") == 1


def test_each_checkpoint_is_observed_once(tree: FinetuningTree) -> None:
    running(tree)
    for step, count in ((100, 1), (100, 1), (200, 2)):
        checkpoint = {
            "path": f"/c/{step}", "step": step, "time": to_iso(NOW + step), "size_bytes": 10 * step, "count": count,
        }  # fmt: skip
        tree.runs.progress("r", checkpoint=checkpoint)
        tree.text()
    assert tree.value("checkpoint_size_bytes_count") == 2
    assert tree.value("checkpoint_size_bytes_sum") == 3000


def test_a_progress_of_unknown_length_has_no_percentage(tree: FinetuningTree) -> None:
    running(tree)
    tree.runs.progress("r", total_steps=None)
    assert tree.value("training_step") == 120
    assert tree.value("training_progress") is None


def test_a_run_of_another_host_is_that_hosts_to_export(make_runs: Callable[..., RunsTree]) -> None:
    tree = FinetuningTree(make_runs())
    running(tree, host="node2")
    assert tree.samples() == {}


def test_label_values_are_escaped_and_read_back_whole(tree: FinetuningTree) -> None:
    model = 'a"b\\c} 1 x="'
    running(tree, model=model)
    assert tree.value("job_status", model_id=model) == 1


def test_where_the_runs_cannot_be_read_nothing_is_shown_and_nothing_observed_is_lost(tree: FinetuningTree) -> None:
    running(tree, status="failed", end_time=to_iso(NOW))
    assert tree.value("job_duration_seconds_count") == 1
    tree.fails = True
    assert tree.samples() == {}
    tree.fails = False
    running(tree, status="failed", end_time=to_iso(NOW), reason="seen again")
    assert tree.value("job_duration_seconds_count") == 1


def test_gpus_are_nobodys_where_two_runs_share_the_node(tree: FinetuningTree) -> None:
    for run_id in ("r", "s"):
        running(tree, run_id)
    tree.gpu(0.5, 1.0)
    assert tree.value("gpu_utilization_percent") is None
    running(tree, "s", status="succeeded", end_time=to_iso(NOW))
    assert tree.value("gpu_utilization_percent") == 75


def test_gpus_that_are_known_to_work_for_a_run_are_its_own(tree: FinetuningTree) -> None:
    for run_id in ("r", "s"):
        running(tree, run_id)
    tree.gpu(0.25, 0.5, 1.0)
    tree.attribute("training_gpu_info", {0: {"run_id": "r"}, 1: {"run_id": "r"}, 2: {"run_id": "s"}})
    assert tree.value("gpu_utilization_percent") == 37.5
    assert tree.value("gpu_memory_used_bytes") == 20
    assert tree.value("gpu_utilization_percent", "s") == 100


def test_gpus_of_a_slurm_job_are_those_of_its_run(tree: FinetuningTree) -> None:
    running(tree, job_id="812", scheduler="slurm", attempt_key="slurm:812:0")
    running(tree, "s", job_id="812", scheduler="local")
    tree.gpu(0.25, 0.5)
    tree.attribute("slurm_gpu_job_info", {1: {"job_id": "812"}})
    assert tree.value("gpu_utilization_percent") == 50
    assert tree.value("gpu_utilization_percent", "s") is None


def test_a_slurm_job_that_is_known_to_carry_a_run_gives_it_its_gpus(tree: FinetuningTree) -> None:
    running(tree)
    tree.gpu(0.25, 0.5)
    tree.attribute("slurm_gpu_job_info", {1: {"job_id": "812", "run_id": "r"}})
    assert tree.value("gpu_utilization_percent") == 50


def test_a_run_that_has_ended_has_no_gpus(tree: FinetuningTree) -> None:
    running(tree, status="succeeded", end_time=to_iso(NOW))
    tree.gpu(1.0)
    tree.attribute("training_gpu_info", {0: {"run_id": "r"}})
    assert tree.value("gpu_utilization_percent") is None


def test_a_head_node_exports_runs_elsewhere_without_its_own_gpus(make_runs: Callable[..., RunsTree]) -> None:
    tree = FinetuningTree(make_runs(all_hosts=True))
    running(tree, host="node2")
    tree.gpu(1.0)
    assert tree.value("job_status") == 1
    assert tree.value("gpu_utilization_percent") is None
