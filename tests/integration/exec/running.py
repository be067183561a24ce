"""Starting `trainwarden exec`, and reading what it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainwarden.record.rank import RankBeat, read_rank
from trainwarden.record.snapshot import Snapshot, read_snapshot

DEADLINE_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[3]


class Exec:
    """`trainwarden exec --run-id r`, with `<runs>` in the test's own folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.folder = runs / "r"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, *command: str, options: tuple[str, ...] = (), environment: dict[str, str] | None = None, **more: Any
    ) -> "subprocess.Popen[bytes]":
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        process = subprocess.Popen(
            [sys.executable, "-m", "trainwarden", "exec", "--run-id", "r", *options, "--", *command],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TRAINWARDEN_RUNS_DIR": str(self.runs),
                **(environment or {}),
            },
            **streams,
        )
        self._started.append(process)
        return process

    def run(self, *command: str, **how: Any) -> "subprocess.CompletedProcess[bytes]":
        process = self.start(*command, **how)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def python(self, code: str, **how: Any) -> "subprocess.CompletedProcess[bytes]":
        return self.run(sys.executable, "-c", code, **how)

    def snapshot(self) -> Snapshot:
        return read_snapshot(self.folder)

    def read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name).read_text())
        return document

    def status_of_rank(self, rank: int) -> str | None:
        beat = read_rank(self.folder, rank)
        assert isinstance(beat, RankBeat)
        return beat.status

    @property
    def log(self) -> bytes:
        return (self.folder / "logs/training_log_latest.txt").read_bytes()

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
