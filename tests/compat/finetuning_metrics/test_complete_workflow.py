"""From the start of a training to the report about it, with the commands of its users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.finetuning_metrics.jobs import HERE, LABELS, MODEL, TITLE, TRAINWARDEN, Page, Start, read_if_there
from tests.waiting import wait_until
from trainwarden.stack.ports import free_port

pytestmark = [pytest.mark.seed(TITLE, "Example: Complete Workflow"), pytest.mark.process]


def test_train_with_metrics_then_look_then_validate(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("templates").mkdir()
    Path("templates/example_dataset.jsonl").write_text("{}\n" * 4)
    port = free_port()
    training = start(
        [
            sys.executable, str(HERE / "programs/app.py"), "--model-id", MODEL,
            "--dataset-path", "templates/example_dataset.jsonl", "--output-dir", "./output", "--method", "lora",
            "--enable-metrics", "--metrics-port", str(port),
        ]
    )  # fmt: skip
    assert training.wait(60) == 0
    command = [
        *TRAINWARDEN, "validate-job", "--training-info", "./output/training_info.json",
        "--model-path", "./output", "--profile-path", "./output/aim_profile.json",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "✓ PASS - training_loss\n  Training loss: 0.7734\n" in ended.stdout
    assert "✓ PASS - checkpoint_integrity\n" in ended.stdout
    assert ended.stdout.endswith("Summary: 3/3 checks passed\n")
    server = free_port()
    start(
        [
            *TRAINWARDEN, "metrics-server", "--port", str(server), "--job-name", "my-job", "--model-id", MODEL,
            "--method", "lora", "--training-info", "./output/training_info.json",
        ]
    )  # fmt: skip
    url = f"http://localhost:{server}/metrics"
    wait_until(lambda: Page(read_if_there(url)).value("finetuning_job_status", **LABELS) == 2)
    assert Page(read_if_there(url)).value("finetuning_train_loss", **LABELS) == pytest.approx(0.7734)
