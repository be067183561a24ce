"""`trainwarden health`, from the record alone; tests/integration/commands has it with a real Prometheus."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.runs.records import NOW, RUN, foreign_run, write
from trainwarden import cli
from trainwarden.record.clock import to_iso
from trainwarden.runs.health import print_run_health, run_health


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALE_MINUTES", raising=False)
    monkeypatch.setattr("time.time", lambda: NOW)


def health(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    status = cli.main(["health", RUN, "--runs-dir", str(tmp_path), *more])
    return status, capsys.readouterr().out


def test_a_run_that_works_is_healthy_and_what_is_not_known_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign_run(tmp_path)
    status, text = health(tmp_path, capsys)
    assert (status, text.splitlines()[0]) == (0, f"{RUN}  HEALTHY  RUNNING, training")
    assert "GPUs         unknown: no --prometheus" in text
    report = json.loads(health(tmp_path, capsys, "--json")[1])
    assert (report["healthy"], report["gpu"]["healthy"], report["ray"]["healthy"]) == (True, None, None)


def test_a_stale_run_is_not_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_run(tmp_path, age=700, progress_age=700)
    status, text = health(tmp_path, capsys)
    assert status == 1
    assert "Issue        Both heartbeats stale (>10m)" in text


@cases(
    ("line", "transport", "active", "is_healthy"),
    [
        ("n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", "efa", True, True),
        ("n1:1:2 [0] NCCL INFO NET/OFI Selected provider is tcp", "tcp", False, True),
        # One process of two has fallen back.
        (
            "n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa\nn2:7:8 [0] NCCL INFO Using network Socket",
            "socket",
            False,
            False,
        ),
        ("n1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "socket", False, False),
        ("nothing about it", None, None, True),
    ],
)
def test_the_network_is_that_of_the_log_and_a_socket_instead_of_efa_is_an_issue(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: str,
    transport: str | None,
    active: bool | None,
    is_healthy: bool,
) -> None:
    folder = foreign_run(tmp_path)
    write(folder / "metadata.json", status="running", last_update=to_iso(NOW), environment={"fi_provider": "efa"})
    (folder / "logs/training_log_latest.txt").write_text(f"begin\n{line}\n")
    report = json.loads(health(tmp_path, capsys, "--json")[1])
    assert (report["efa"]["transport"], report["efa"]["efa_active"]) == (transport, active)
    assert report["healthy"] is is_healthy


def test_a_checkpoint_that_is_not_complete_is_an_issue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_run(tmp_path / "runs")
    broken = tmp_path / "checkpoints/checkpoint-10"
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{}")
    (broken / "model.safetensors").write_bytes(b"\0" * 4)
    report = run_health(RUN, runs_dir=tmp_path / "runs", checkpoint_dir=str(tmp_path / "checkpoints"))
    assert report["healthy"] is False
    assert report["checkpoints"]["latest_step"] == 10
    print_run_health(report)
    assert "The newest checkpoint is not complete" in capsys.readouterr().out


def test_a_prometheus_that_gives_no_answer_makes_health_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign_run(tmp_path)
    status, text = health(tmp_path, capsys, "--prometheus", "http://127.0.0.1:1")
    assert status == 3
    assert "Unknown      Prometheus is unreachable" in text


def test_nothing_is_known_of_the_health_of_a_run_without_a_heartbeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RUN).mkdir()
    os.utime(tmp_path / RUN, (NOW, NOW))
    status, text = health(tmp_path, capsys)
    assert (status, text.splitlines()[0]) == (3, f"{RUN}  UNKNOWN  PENDING")
    assert "Unknown      No heartbeat files yet" in text
