"""The example as its user starts it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.session import NODE_FOLDER
from tests.waiting import wait_until
from trainwarden.record import snapshot
from trainwarden.record.rank import RankBeat, read_rank

ROOT = Path(__file__).resolve().parents[3]
TRAIN = ROOT / "examples" / "tiny_lm" / "train.py"
SECONDS = 120.0


class Training:
    """The example in processes of its own, with records in the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs" / "r"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[str]":
        values = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "TRAINWARDEN_")) and name not in {"RANK", "WORLD_SIZE"}
        }
        values[NODE_FOLDER] = os.environ[NODE_FOLDER]
        values |= {"TRAINWARDEN_RUNS_DIR": str(self.folder.parent), "TRAINWARDEN_RUN_ID": "r"} | environment
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), "--batch", "128", *options],
            cwd="/",
            env=values,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]") -> tuple[int, str]:
        out, _ = process.communicate(timeout=SECONDS)
        return process.returncode, out

    def record(self) -> Any:
        """A snapshot; what a test looks into must be there."""
        return snapshot.read_snapshot(self.folder)

    def reaches(self, step: int) -> None:
        wait_until(lambda: (progress := self.record().progress) and progress.step >= step)

    def pid(self, rank: int) -> int:
        beat = read_rank(self.folder, rank)
        assert isinstance(beat, RankBeat)
        assert beat.pid is not None
        return beat.pid

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                for rank in (0, 1):
                    if read_rank(self.folder, rank) is not None:
                        _kill_if_child(self.pid(rank), process.pid)
                process.kill()
            process.communicate()


def _kill_if_child(pid: int, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == parent:
            os.kill(pid, signal.SIGKILL)
