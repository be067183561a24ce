"""The processes of one attempt, found anywhere in the process tree by the attempt key in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.1
_PROC = Path("/proc")
# Neither stopped nor dead.
_MOVING = frozenset("RSDI")


@dataclass(frozen=True)
class AttemptProcess:
    """A living process: its id and the one-letter state of /proc/<pid>/stat."""

    pid: int
    state: str

    @property
    def moving(self) -> bool:
        """Whether it can run: neither stopped nor traced."""
        return self.state in _MOVING


def of_attempt(key: str) -> list[AttemptProcess]:
    """Return every living process that was started with this attempt key."""
    needle = f"TRAINWARDEN_ATTEMPT_KEY={key}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended, or belongs to another user
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                # The second field is the name in parentheses and may hold anything.
                state = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(AttemptProcess(int(entry.name), state))
    return found


def end_all(find: Callable[[], list[AttemptProcess]], grace_seconds: float) -> None:
    """End every process that `find` returns: SIGTERM and SIGCONT, the grace period, then SIGKILL until none runs.

    Without SIGCONT a stopped process does not act upon SIGTERM.
    """
    _signal(find(), signal.SIGTERM, signal.SIGCONT)
    deadline = time.monotonic() + grace_seconds
    while left := find():
        if time.monotonic() >= deadline:
            _signal(left, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def start_ticks(pid: int) -> int:
    """Return when the process started, in clock ticks since boot: with the pid, its identity."""
    return int((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19])


def _signal(processes: list[AttemptProcess], *numbers: int) -> None:
    for process in processes:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
