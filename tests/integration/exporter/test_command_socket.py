"""The port may come from systemd."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.exporter.running import Started
from tests.integration.server.conftest import read_all
from trainwarden.server.address import shown_address

pytestmark = [pytest.mark.process, pytest.mark.slow]

# As systemd starts a service: the sockets from descriptor 3 on, and the process id that they are for.
ACTIVATE = """
import os, sys
passed = int(sys.argv[1])
os.dup2(passed, 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="x")
os.execv(sys.executable, [sys.executable, "-m", "trainwarden_exporter", *sys.argv[2:]])
"""
FLAGS = ("--web.systemd-socket", "--collector.disable-defaults", "--collector.clock")


def activate(listener: socket.socket, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ACTIVATE, str(listener.fileno()), *FLAGS, *flags]
    return subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.PIPE, text=True)


def test_the_socket_that_systemd_holds_is_served_and_outlives_the_exporter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = shown_address(*listener.getsockname())
        for _ in range(2):
            # The request comes before there is anybody to answer it.
            with socket.create_connection(listener.getsockname(), timeout=60) as early:
                early.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
                started = Started(activate(listener), address)
                assert early.recv(100).startswith(b"HTTP/1.1 200 ")
            assert 'component="exporter"' in started.page()
            assert f"serving /metrics on {address}" in started.end()


def test_a_socket_in_the_file_system_is_served_too(tmp_path: Path) -> None:
    path = tmp_path / "exporter.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        process = activate(listener)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)
        assert f"serving /metrics on unix:{path}" in process.communicate(timeout=60)[1]


def test_over_tls_the_socket_that_systemd_holds_outlives_the_exporter_and_its_certificate(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(2):
            # Each exporter has the certificate of another authority, and the client knows the new one alone.
            authority = Authority.create(tmp_path)
            authority.issue("server", "localhost")
            trusted = ssl.create_default_context(cafile=str(authority.file))
            with socket.create_connection(listener.getsockname(), timeout=60) as early:
                process = activate(listener, f"--web.config.file={config}")
                with trusted.wrap_socket(early, server_hostname="localhost") as client:
                    client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    assert read_all(client).startswith(b"HTTP/1.1 200 ")
                process.send_signal(signal.SIGTERM)
                assert process.communicate(timeout=60)[1].count("serving /metrics") == 1
                assert process.returncode == 0


@pytest.mark.parametrize("variables", [{}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}, {"LISTEN_FDS": "0"}])
def test_without_a_socket_it_ends_with_2_and_one_line(variables: dict[str, str]) -> None:
    command = [*Started.COMMAND, *FLAGS]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "--web.systemd-socket: systemd passed no socket to this process; expected" in line
