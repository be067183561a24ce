"""What must be installed, what a GPU's values need, and alerts about what went wrong."""

from __future__ import annotations

import importlib.metadata
import json
import re
import socket
import time
from pathlib import Path

import pytest
import yaml

from tests.compat.finetuning_metrics.jobs import TITLE, Page
from tests.devices.amd import AmdMachine
from trainwarden.record.clock import to_iso

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.seed(TITLE, "Dependencies")
def test_the_extra_of_the_exporter_brings_prometheus_client() -> None:
    requirements = importlib.metadata.requires("trainwarden") or []
    assert any(re.match(r"prometheus[-_]client\b.*extra == ['\"]exporter['\"]", each) for each in requirements)


@pytest.mark.seed(TITLE, "Troubleshooting")
@pytest.mark.process
def test_gpu_metrics_come_from_amds_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = to_iso(time.time())
    folder = tmp_path / "runs" / "my-job"
    folder.mkdir(parents=True)
    identity = {"run_id": "my-job", "model": "m", "method": "lora", "host": socket.gethostname()}
    (folder / "metadata.json").write_text(json.dumps({**identity, "status": "running", "last_update": now}))
    (folder / "progress.json").write_text(json.dumps({"step": 3, "last_updated": now}))
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path / "runs"))
    machine = AmdMachine(tmp_path / "machine", gpus=2)
    page = Page(machine.page("--collector.runs", "--compat.finetuning"))
    labels = {"job_name": "my-job", "model_id": "m", "method": "lora"}
    assert page.value("finetuning_training_step", **labels) == 3
    sizes = [page.value(f"finetuning_gpu_memory_{name}_bytes", **labels) for name in ("used", "total")]
    assert all(size is not None for size in sizes), page.text
    used, total = (size or 0 for size in sizes)
    assert 0 < used <= total
    assert 300e9 < total < 500e9, "of two MI300X"
    utilization = page.value("finetuning_gpu_utilization_percent", **labels)
    assert utilization is not None and 0 <= utilization <= 100


@pytest.mark.seed(TITLE, "Troubleshooting")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="no alert reads finetuning_ names: a job that failed or stalls tells nobody",
)
def test_alerts_read_the_metrics_of_the_server_alone() -> None:
    rules = [
        rule
        for path in sorted((ROOT / "rules/alerts").glob("*.yml"))
        for group in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]
    read = {name for rule in rules for name in re.findall(r"\bfinetuning_\w+", rule["expr"])}
    wanted = {"finetuning_job_status", "finetuning_training_step", "finetuning_train_loss"}
    assert wanted - read == set()
