"""What `trainwarden up` refuses, in one line and with status 2, before anything starts."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import cases
from tests.e2e.running import Up, training
from tests.waiting import wait_until
from trainwarden.stack import up as stack
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(540)]


@cases(
    "arguments, named",
    [
        (["--"], "no command"),
        (["--", "/nonexistent/program"], "/nonexistent/program"),
        (["--policy", "nonsense", "--", "true"], "nonsense"),
        (["--stall-seconds", "-1", "--", "true"], "-1"),
        (["--runs-dir", "/proc/nothing", "--", "true"], "/proc/nothing"),
        (["--prometheus-port", "70000", "--", "true"], "70000"),
        (["--slack-url-file", "/nonexistent", "--", "true"], "/nonexistent"),
    ],
)
def test_what_cannot_be_is_refused_by_name_before_anything_starts(
    tmp_path: Path, tools: Tools, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert stack.main(["--run-id", "r1", "--state-dir", str(tmp_path / "state"), *arguments]) == 2
    assert named in capsys.readouterr().err


@cases("run_id", ["a/b", "..", "a..b", "a\nb", ""])
def test_a_run_id_that_could_leave_its_folder_is_refused(
    tmp_path: Path, tools: Tools, capsys: pytest.CaptureFixture[str], run_id: str
) -> None:
    assert stack.main(["--run-id", run_id, "--state-dir", str(tmp_path / "state"), "--", "true"]) == 2
    assert "run id" in capsys.readouterr().err


def test_one_port_for_two_services_is_refused_by_name(up: Callable[..., Up]) -> None:
    port = str(free_port())
    job = up("--prometheus-port", port, "--exporter-port", port, "--", "true")
    assert job.end() == 2
    assert f"--exporter-port {port}" in job.text


def test_a_busy_port_is_refused_by_name(up: Callable[..., Up]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        job = up("--alertmanager-port", str(port), "--", "true")
        assert job.end() == 2
        assert f"--alertmanager-port {port}" in job.text


def test_a_folder_that_another_live_run_owns_is_refused_before_training_starts(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    here = {"TRAINWARDEN_RUN_ID": "r1", "TRAINWARDEN_RUNS_DIR": str(runs)}
    with subprocess.Popen(training(tmp_path, 10_000), env={**os.environ, **here}) as first:
        try:
            wait_until((runs / "r1" / "progress.json").exists, "the first step")
            second = up("--runs-dir", str(runs), "--", "touch", str(tmp_path / "ran"))
            assert second.end() == 2
        finally:
            first.kill()
    assert str(first.pid) in second.text
    assert not (tmp_path / "ran").exists()


def test_a_state_folder_or_a_run_is_used_by_one_at_a_time(up: Callable[..., Up], tmp_path: Path) -> None:
    first = up("--", "sleep", "600")
    first.wait((first.run / "metadata.json").exists)
    command = [sys.executable, "-m", "trainwarden", "up", "--runs-dir", str(tmp_path / "state" / "runs")]
    for more, named in (
        (["--run-id", "r2", "--state-dir", str(tmp_path / "state")], "--state-dir"),
        (["--run-id", "r1", "--state-dir", str(tmp_path / "other")], "--run-id r1"),
    ):
        done = subprocess.run([*command, *more, "--", "true"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert named in done.stderr
        assert str(first.process.pid) in done.stderr
