"""Calling shell commands, and reading what they leave."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from trainwarden.record.snapshot import Snapshot, read_snapshot

DEADLINE_SECONDS = 60.0
KEY = "slurm:7:0"


class Shell:
    """Runs commands for the run `r` of the attempt `slurm:7:0`, with `<runs>` in the test's own folder."""

    def __init__(self, runs: Path, commands: Path) -> None:
        self.runs = runs
        self.folder = runs / "r"
        self.environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "TRAINWARDEN_RUNS_DIR": str(runs),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def call(
        self, *arguments: str, key: str | None = KEY, stdin: bytes = b"", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """`trainwarden ARGUMENTS` for the run `r`."""
        said = {"TRAINWARDEN_RUN_ID": "r", **({"TRAINWARDEN_ATTEMPT_KEY": key} if key else {}), **environment}
        done = subprocess.run(
            ["trainwarden", *arguments],
            env={**self.environment, **said},
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, interpreter: str, script: str, **more: Any) -> "subprocess.Popen[bytes]":
        """A script that sources trainwarden.sh first, in a session of its own."""
        process = subprocess.Popen(
            [interpreter, "-c", script],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **more,
        )
        self._started.append(process)
        return process

    def run(self, interpreter: str, script: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(interpreter, script)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    def read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name).read_text())
        return document

    def snapshot(self) -> Snapshot:
        return read_snapshot(self.folder)

    def clean_up(self) -> None:
        for process in self._started:
            # What it started may outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
