"""The exit statuses of commands as processes: `exec`, which ends as its command does, and services that are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.waiting import wait_until

# What `trainwarden exec` runs, and a name for it.
_COMMANDS: dict[str, Sequence[str]] = {
    "true": ("true",),
    "exit 7": ("sh", "-c", "exit 7"),
    "exit 255": ("sh", "-c", "exit 255"),
    "killed by SIGTERM": ("sh", "-c", "kill -TERM $$"),
    "killed by SIGKILL": ("sh", "-c", "kill -KILL $$"),
    "a file without the right to run it": ("./no-program",),
    "a program that is missing": ("./missing",),
}
# Services that write their address into a file once they run; OWN is a name for what is theirs.
_SERVICES = {
    "trainwarden-exporter": (
        "--web.listen-address=127.0.0.1:0 --web.port-file=OWN.port --path.state=OWN --collector.runs.path=runs"
    ),
    "trainwarden-remediator": (
        "--web.listen-address=127.0.0.1:0 --web.port-file=OWN.port --webhook-token-file=token --state-dir=OWN"
        " --alertmanager-url=http://127.0.0.1:1 --prometheus-url=http://127.0.0.1:1"
    ),
}
_BIN = Path(sys.executable).parent


def lines() -> Iterator[str]:
    """Yield a line for each process: its status, and what it is."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "no-program").write_text("")
        (folder / "token").write_text("secret")
        (folder / "log").write_text("step 1/2 loss 0.5\n" * 1000)
        (folder / "runs").mkdir()
        started = {
            f"trainwarden exec: {name}": stack.enter_context(
                _process(folder, "trainwarden", "exec", "--run-id", f"r{number}", "--runs-dir", "runs", "--", *command)
            )
            for number, (name, command) in enumerate(_COMMANDS.items())
        }
        services = {
            (service, number): stack.enter_context(
                _process(folder, service, *flags.replace("OWN", f"{service}-{number.name}").split())
            )
            for service, flags in _SERVICES.items()
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        yield from (f"{process.wait(60)} | {name}" for name, process in started.items())
        yield f"{_unread(folder)} | trainwarden scan: the reader of its output has closed the pipe"
        for (service, number), process in services.items():
            port = folder / f"{service}-{number.name}.port"
            _await(process, port)
            process.send_signal(number)
            yield f"{process.wait(60)} | {service}: ended by {number.name}"


def _await(process: subprocess.Popen[bytes], port: Path) -> None:
    wait_until(lambda: port.exists() or process.poll() is not None, str(port))


@contextlib.contextmanager
def _process(folder: Path, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "HOME": str(folder)}
    quiet = subprocess.DEVNULL
    with subprocess.Popen([_BIN / program, *words], cwd=folder, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            yield process
        finally:
            process.kill()


def _unread(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with subprocess.Popen(
            [_BIN / "trainwarden", "scan", "log"], cwd=folder, stdout=writing, stderr=subprocess.DEVNULL
        ) as process:
            return process.wait(60)
    finally:
        os.close(writing)
