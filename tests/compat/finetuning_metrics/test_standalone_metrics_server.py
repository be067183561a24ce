"""A server beside the training, which reads the file that the training writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.finetuning_metrics.jobs import LABELS, MODEL, TITLE, TRAINWARDEN, Page, Start, read_if_there
from tests.waiting import wait_until
from trainwarden.record.folder import write_json
from trainwarden.stack.ports import free_port
from trainwarden_exporter.finetuning.metrics_server import build_parser

pytestmark = pytest.mark.seed(TITLE, "Standalone Metrics Server")

Serve = Callable[..., Callable[[], Page]]


@pytest.fixture
def serve(start: Start) -> Serve:
    """Starts a server with the options of its users; returns what reads its page."""

    def begin(
        info: Path, *more: str, command: tuple[str, ...] = (*TRAINWARDEN, "metrics-server")
    ) -> Callable[[], Page]:
        port = free_port()
        start(
            [
                *command, "--port", str(port), "--job-name", "my-job", "--model-id", MODEL, "--method", "lora",
                "--training-info", str(info), *more,
            ]
        )  # fmt: skip
        return lambda: Page(read_if_there(f"http://localhost:{port}/metrics"))

    return begin


@pytest.mark.process
def test_it_follows_a_file_that_comes_late_breaks_and_is_replaced(serve: Serve, tmp_path: Path) -> None:
    info = tmp_path / "output" / "training_info.json"
    page = serve(info, "--interval", "50ms")
    wait_until(lambda: page().value("finetuning_job_status", **LABELS) == 0, "pending")
    info.parent.mkdir()
    write_json(info, {"global_step": 5, "max_steps": 20, "epoch": 1, "train_loss": 0.5234})
    wait_until(lambda: page().value("finetuning_training_progress", **LABELS) == 25)
    assert page().value("finetuning_job_status", **LABELS) == 1
    assert page().value("finetuning_train_loss", **LABELS, epoch="1") == 0.5234
    info.write_text('{"global_step": 6, "max_st')
    wait_until(lambda: re.search(r'errors_total\{.*reason="unreadable"\} [1-9]', page().text))
    assert page().value("finetuning_training_step", **LABELS) == 5
    write_json(info, {"status": "Succeeded", "global_step": 20, "max_steps": 20, "train_runtime": 90})
    wait_until(lambda: page().value("finetuning_job_status", **LABELS) == 2)
    assert page().value("finetuning_job_duration_seconds_sum", **LABELS) == 90


@pytest.mark.process
def test_python_runs_it_as_a_module(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "training_info.json").write_text(json.dumps({"status": "Paused", "step": 3}))
    module = (sys.executable, "-m", "trainwarden_exporter.finetuning.metrics_server")
    page = serve(tmp_path / "training_info.json", command=module)
    wait_until(lambda: page().value("finetuning_job_status", **LABELS) == 4)
    assert page().value("finetuning_training_step", **LABELS) == 3


@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a file that says nothing yet is taken for a job that runs"
)
def test_a_file_without_a_value_is_a_job_that_is_pending(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "training_info.json").write_text("{}")
    page = serve(tmp_path / "training_info.json")
    wait_until(lambda: page().value("finetuning_info_file_timestamp_seconds", **LABELS))
    assert page().value("finetuning_job_status", **LABELS) == 0


def test_port_is_8000_by_default() -> None:
    assert build_parser().parse_args(["--job-name", "my-job"]).port == 8000
