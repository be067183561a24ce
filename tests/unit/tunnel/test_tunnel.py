"""`trainwarden tunnel`: hosts, settings and ends. What users were promised: tests/compat/finetuning_metrics."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forwarding_ssh
from tests.answering import AnsweringService, Asked
from trainwarden import cli
from trainwarden.errors import UsageError
from trainwarden.stack.ports import free_port
from trainwarden.tunnel import check_host, config_snippet, ssh_command

METRICS = b"""\
# HELP finetuning_job_status x
finetuning_job_status{job_name="j"} 1.0
finetuning_train_loss{job_name="j",epoch="1"} 0.5
finetuning_training_step{job_name="j"} 7
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in, first on PATH."""
    return forwarding_ssh.put_on_path(tmp_path, monkeypatch)


@pytest.fixture
def metrics() -> Iterator[int]:
    def answer(asked: Asked) -> tuple[int, object]:
        return (200, METRICS) if asked.path == "/metrics" else (404, b"")

    service = AnsweringService(answer)
    yield int(service.url.rpartition(":")[2])
    service.close()


@pytest.mark.process
def test_metrics_come_through_and_the_tunnel_is_closed(
    ssh: Path, metrics: int, capsys: pytest.CaptureFixture[str]
) -> None:
    local = free_port()
    argv = ["tunnel", "user@gpu-1.example.org", "--port", str(metrics), "--local-port", str(local)]
    assert cli.main([*argv, "--once"]) == 0
    assert "3 finetuning_" in capsys.readouterr().out
    assert (ssh / "argv").read_text().splitlines()[-4:] == [
        "-L",
        f"127.0.0.1:{local}:localhost:{metrics}",
        "--",
        "user@gpu-1.example.org",
    ]
    assert cli.main(["tunnel", "--check", "--port", str(local)]) == 1, "it is closed"
    assert cli.main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["series"]["finetuning_"] == 3


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("ssh: Could not resolve hostname h: Name or service not known", "HostName"),
        ("Host key verification failed.", "compare its key"),
    ],
)
def test_what_ssh_says_is_shown_with_what_to_do(
    ssh: Path, capsys: pytest.CaptureFixture[str], said: str, advice: str
) -> None:
    (ssh / "refuse").write_text(f"\x1b[31m{said}")
    assert cli.main(["tunnel", "h", "--local-port", str(free_port()), "--once"]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert advice in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    "host",
    [
        "-oProxyCommand=touch x",
        "h;touch x",
        "$(touch x)",
        "h x",
        "u@-h",
        "-l",
        "a`b`",
        "h\nx",
        "u@",
        "@h",
        "",
        "h|x",
        "%h",
    ],
)
def test_a_host_is_no_option_and_no_shell(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        check_host(host)
    with pytest.raises(SystemExit) as end:
        cli.main(["tunnel", "--once", "--", host])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("host", ["gpu-1", "user@gpu_1.example.org", "10.0.0.1", "fe80::1", "root@::1"])
def test_usual_hosts_are_taken(host: str) -> None:
    assert ssh_command(check_host(host), 8000, 8000)[-2:] == ["--", host]


def test_a_page_without_a_training_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    service = AnsweringService(lambda _asked: (200, b"go_goroutines 7\n"))
    try:
        assert cli.main(["tunnel", "--check", "--port", service.url.rpartition(":")[2]]) == 1
    finally:
        service.close()
    assert "no metrics of a training" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
@pytest.mark.parametrize(
    ("host", "lines"),
    [
        ("me@gpu-1.example.org", ["Host gpu-1-metrics", "HostName gpu-1.example.org", "User me"]),
        ("10.0.0.1", ["Host 10.0.0.1-metrics", "HostName 10.0.0.1"]),
        ("fe80::1", ["Host fe80::1-metrics", "HostName fe80::1"]),
        (
            "gpu1",
            [
                "Host gpu1-metrics",
                "HostName 10.1.2.3",
                "User trainer",
                "Port 2222",
                "IdentityFile ~/.ssh/cluster",
                "ProxyJump bastion",
            ],
        ),
        ("other", ["Host other-metrics", "HostName other"]),
    ],
)
def test_the_lines_for_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, lines: list[str]) -> None:
    (tmp_path / "config").write_text(
        "Host gpu1\n HostName 10.1.2.3\n User trainer\n Port 2222\n IdentityFile ~/.ssh/cluster\n ProxyJump bastion\n"
    )
    # The real ssh finds the configuration by the account, not by $HOME.
    real = shutil.which("ssh")
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\n[ "$1" = -F ] && exec {real} "$@"\nexec {real} -F {tmp_path}/config "$@"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    always = ["LocalForward 9000 localhost:8000", "ExitOnForwardFailure yes", "ServerAliveInterval 15"]
    assert [line.strip() for line in config_snippet(host, 9000, 8000).splitlines()] == lines + always
