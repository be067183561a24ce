"""The whole page of a fixture tree, byte for byte. `UPDATE_GOLDEN=1 pytest …` writes it anew."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree, samples_of
from trainwarden.record.clock import to_iso
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.collectors.runs import filesystem_metrics, metrics, rank_metrics
from trainwarden_exporter.docs import defined_in

# Of runs that are in S3 alone or nowhere, of durations, and of processes, file systems and checkpoints.
NOT_HERE = {
    "training_run_observed_timestamp_seconds",
    "training_run_expected",
    "training_run_s3_info",
    "training_run_plain",
    "training_checkpoint_complete",
    "training_checkpoint_verified_step",
    "training_rank_process_state",
    "training_missing_ranks",
    "training_superseded_attempt_info",
    "training_filesystem_avail_bytes",
    "training_filesystem_size_bytes",
    "training_filesystem_files_avail",
    "training_filesystem_answer_seconds",
    "training_filesystem_answering",
    "training_run_duration_seconds",
    "training_silent_ranks_timestamp_seconds",
}
GOLDEN = Path(__file__).parent / "golden.prom"


def fixture_tree(runs: RunsTree) -> RunsTree:
    """A healthy run, a failed, a finished, a foreign, a printing one, an empty folder, another node's, rubbish."""
    named = {"framework": "torch", "model": "tiny", "method": "pretrain", "gpu_type": "NVIDIA H100", "gpu_count": 2}
    runs.metadata("healthy", thresholds={"stale_seconds": 90}, **named)
    runs.progress(
        "healthy",
        high_water=120,
        steps_completed=120,
        nonfinite=0,
        epoch=0.5,
        grad_norm=0.9,
        tokens_per_second=5000.5,
        samples_per_second=10,
        step_durations={"count": 300, "p50": 0.8, "p99": 1.25, "max": 4.5},
        checkpoint={"path": "/c/100", "step": 100, "time": to_iso(NOW - 60), "size_bytes": 4096, "count": 2},
    )
    for rank in (0, 1):
        taken = {"sections": {"data": 0.25, "forward": 0.5}, "gpu_taken_bytes": 2**34} if rank else {}
        runs.rank("healthy", rank, **taken)
    runs.metadata("failed", attempt=1, attempt_key="slurm:12:1", job_id="12", scheduler="slurm")
    runs.write(
        "failed",
        "_error",
        {
            "attempt_key": "slurm:12:1",
            "time": to_iso(NOW - 5),
            "message": 'rank 1: "connection reset by peer"',
            "error_type": "communication",
            "failure": "peer_reset",
            "subsystem": "distributed",
            "severity": "error",
            "hint": "Look at the peer.",
        },
    )
    runs.write("failed", "logs/training_log_latest.txt", "step 7\nConnectionResetError: peer\\host\n")
    runs.metadata("finished", status="succeeded", phase="done", end_time=to_iso(NOW - 20))
    runs.write("finished", "_complete", {"attempt_key": "local:77-1:0", "time": to_iso(NOW - 20), "step": 9})
    runs.foreign("foreign")
    runs.metadata("printing", phase="load", phase_source="output")
    runs.folder("never", modified=NOW - 300)
    runs.metadata("elsewhere", host="node0")
    runs.rank("elsewhere", 8)
    runs.write("rubbish", "metadata.json", "{")
    runs.folder("old", modified=NOW - 90_000)
    runs.folder("not..a.run")
    return runs


def test_the_page_of_the_fixture_tree_is_the_golden_one(runs: RunsTree) -> None:
    page = fixture_tree(runs).text()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(page, encoding="utf-8")
    assert page == GOLDEN.read_text(encoding="utf-8")


def test_the_golden_page_holds_every_metric_of_runs_in_the_catalogue() -> None:
    exposed = samples_of(GOLDEN.read_text(encoding="utf-8")).keys()
    histogram = {f"training_run_duration_seconds{suffix}" for suffix in ("_bucket", "_count", "_sum")}
    catalogue = {each.name for module in (metrics, rank_metrics, filesystem_metrics) for each in defined_in(module)}
    assert exposed - histogram == catalogue - NOT_HERE


@pytest.mark.process
def test_promtool_finds_nothing_wrong_with_the_golden_page(tools: Tools) -> None:
    with GOLDEN.open("rb") as page:
        command = [str(tools.promtool), "check", "metrics"]
        checked = subprocess.run(command, check=False, stdin=page, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
