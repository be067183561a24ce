"""Metrics of a remote machine through ssh: opening the tunnel, checking it, and what to do where nothing comes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forwarding_ssh
from tests.cases import cases
from tests.compat.finetuning_metrics.jobs import MODEL, TITLE, TRAINWARDEN, Start, read, read_if_there, values
from tests.prometheus import running_prometheus
from tests.waiting import wait_until
from trainwarden import cli
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port
from trainwarden_exporter import FineTuningMetricsExporter

pytestmark = pytest.mark.seed(TITLE, "Remote Access via SSH Port Forwarding")

HOST = "user@remote-server"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in for ssh."""
    return forwarding_ssh.put_on_path(tmp_path, monkeypatch)


@pytest.fixture
def exporter() -> Iterator[FineTuningMetricsExporter]:
    """The metrics of a training at the other end."""
    exporter = FineTuningMetricsExporter(port=0)
    exporter.start_server()
    exporter.update_job_status("my-job", MODEL, "lora", "Running")
    exporter.update_training_metrics(values())
    yield exporter
    exporter.stop()


@pytest.fixture
def remote(exporter: FineTuningMetricsExporter) -> int:
    """The port of them."""
    return int((exporter.exporter.bound or "").rpartition(":")[2])


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script that users keep beside their project."""
    assert cli.main(["tunnel", "--script"]) == 0
    path = tmp_path / "validate_metrics_remote.sh"
    path.write_text(capsys.readouterr().out)
    path.chmod(0o755)
    return path


def validate(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.process
def test_tunnel_forwards_the_port_here_until_it_is_interrupted(
    ssh: Path, exporter: FineTuningMetricsExporter, remote: int, start: Start
) -> None:
    local = free_port()
    process = start([*TRAINWARDEN, "tunnel", HOST, "--port", str(remote), "--local-port", str(local)])
    url = f"http://localhost:{local}/metrics"
    wait_until(lambda: "finetuning_job_status{" in read_if_there(url))
    assert (ssh / "argv").read_text().endswith(f"-L\n127.0.0.1:{local}:localhost:{remote}\n--\n{HOST}")
    exporter.update_training_metrics(values(current_step=51))
    assert re.search(r"^finetuning_training_step\{.*\} 51\.0$", read(url), re.MULTILINE), "the metrics are updating"
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(4)]
    assert re.fullmatch(rf"✓ http://127\.0\.0\.1:{local}/metrics: \d+ finetuning_…\n", told[0])
    assert f"watch -n 5 'curl -s http://127.0.0.1:{local}/metrics | grep ^finetuning_" in told[2]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    wait_until(lambda: read_if_there(url) == "", "ssh has ended too")


@pytest.mark.process
@pytest.mark.xfail(
    strict=True, raises=SystemExit, reason="the tunnel has no option that leaves it open behind the shell"
)
def test_tunnel_runs_in_the_background(ssh: Path, remote: int) -> None:
    local = free_port()
    options = [HOST, "--port", str(remote), "--local-port", str(local)]
    try:
        assert cli.main(["tunnel", "--background", *options]) == 0
        assert "finetuning_job_status{" in read(f"http://localhost:{local}/metrics")
    finally:
        forwarding_ssh.end(ssh)


def test_a_tunnel_that_is_open_is_checked(remote: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tunnel", "--check", "--port", str(remote)]) == 0
    assert re.search(r"\d+ finetuning_…", capsys.readouterr().out)
    assert cli.main(["tunnel", "--check", "--port", str(remote), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["series"]["finetuning_"] > 10) == (True, True)
    assert cli.main(["tunnel", "--check", "--port", str(free_port())]) == 1
    assert "is the metrics server running there, on that port?" in capsys.readouterr().err


@pytest.mark.process
@cases(
    ("said", "advice"),
    [
        ("user@remote-server: Permission denied (publickey).", "ssh-copy-id user@remote-server"),
        ("ssh: connect to host remote-server port 22: Connection refused", "firewall"),
        ("channel 0: open failed: administratively prohibited: open failed", "AllowTcpForwarding"),
        ("bind [127.0.0.1]:8000: Address already in use", "--local-port"),
    ],
)
def test_what_ssh_says_is_shown_with_what_to_do(
    ssh: Path, capsys: pytest.CaptureFixture[str], said: str, advice: str
) -> None:
    (ssh / "refuse").write_text(said)
    assert cli.main(["tunnel", HOST, "--local-port", str(free_port()), "--once"]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert advice in told


def test_a_local_port_that_is_taken_is_named_with_what_to_do(
    ssh: Path, remote: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["tunnel", HOST, "--local-port", str(remote)])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert f"{remote} is in use here: Address already in use; take --local-port" in told


@pytest.mark.process
def test_validation_script_checks_tunnel_endpoint_and_metrics(script: Path, remote: int) -> None:
    well = validate(script, remote)
    assert (well.returncode, well.stderr) == (0, ""), well.stdout
    checks = ("/metrics answers", "series of a training", "job_status", "train_loss", "training_step")
    lines = well.stdout.splitlines()
    assert [line.startswith("ok ") and check in line for line, check in zip(lines, checks, strict=True)] == [True] * 5


@pytest.mark.process
def test_validation_script_says_what_is_missing(script: Path) -> None:
    nothing = validate(script, port := free_port())
    assert nothing.returncode == 1
    assert f"ssh -f -N -L {port}:localhost:{port}" in nothing.stdout
    exporter = FineTuningMetricsExporter(port=0)
    exporter.start_server()
    exporter.update_job_status("my-job", MODEL, "lora", "Running")
    partly = validate(script, (exporter.exporter.bound or "").rpartition(":")[2])
    exporter.stop()
    assert partly.returncode == 1
    assert "WRONG neither of finetuning_train_loss" in partly.stdout
    assert "ok    finetuning_job_status" in partly.stdout
    assert validate(script, "8000;true").returncode == 2


def test_validation_script_takes_port_8000_by_default(script: Path) -> None:
    assert 'port="${1:-8000}"' in script.read_text()


@pytest.mark.process
def test_ssh_config_gets_a_host_that_opens_the_tunnel_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tunnel", "your-username@remote-server.example.org", "--config"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    wanted = [
        "Host remote-server-metrics",
        "HostName remote-server.example.org",
        "User your-username",
        "LocalForward 8000 localhost:8000",
    ]
    assert [line for line in wanted if line not in lines] == []


@pytest.mark.tools
def test_prometheus_scrapes_the_page_through_the_tunnel(tools: Tools, tmp_path: Path, remote: int) -> None:
    jobs = [{"job_name": "finetuning", "static_configs": [{"targets": [f"localhost:{remote}"]}]}]
    configuration = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    with running_prometheus(tools, tmp_path, configuration) as prometheus:
        [loss] = wait_until(lambda: prometheus.query('finetuning_train_loss{job="finetuning",epoch="1"}'))
    assert (loss.labels["job_name"], loss.value) == ("my-job", 0.5234)
