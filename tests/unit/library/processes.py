"""Real processes that use the library, and waiting for what they do."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import trainwarden

DEADLINE_SECONDS = 60.0

# Starts an attempt in the test's own process: see the fixture `attempt`.
Starter = Callable[..., "trainwarden.Run"]


class Script:
    """Python code that runs in a process of its own, with `<runs>` in the test's own folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.folder = runs / "r"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, code: str, *, under: Sequence[str] = (), **environment: str) -> "subprocess.Popen[str]":
        """Start the code; `under`: a command that runs it."""
        process = subprocess.Popen(
            [*under, sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "TRAINWARDEN_RUNS_DIR": str(self.runs), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(code, **environment)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            # Not to the end of their output: a child that a failed test left behind may hold it open.
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name).read_text())
        return document


def line(stream: IO[str] | None) -> str:
    """The next line that a process prints."""
    assert stream is not None
    return stream.readline()
