"""A started exporter, as tests talk to it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


def is_alive(process: int) -> bool:
    """Tell whether a process is there; one that nobody has waited for yet is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(process: int) -> list[int]:
    """The processes that its threads have started, as far as these threads are still there."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text().split())
    return found


@dataclass(frozen=True)
class Started:
    """The process, and the address it serves on."""

    COMMAND: ClassVar = (sys.executable, "-m", "trainwarden_exporter")

    process: subprocess.Popen[str]
    address: str

    def page(self) -> str:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as response:
            return str(response.read().decode())

    def value(self, series: str) -> float | None:
        """The value of a series, as it is written on the page; None where it is not."""
        for line in self.page().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return None

    def says(self, text: str) -> None:
        """Wait until its log says something."""
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr), f"it ended and never said: {text}"

    def end(self) -> str:
        """End it as a supervisor does; returns its log."""
        self.process.send_signal(signal.SIGTERM)
        errors = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, errors
        return errors
