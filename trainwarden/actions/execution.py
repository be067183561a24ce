"""One command that an action runs: without a shell, in a group of its own, its output kept and bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trainwarden.actions.ledger import FAILED, INTERRUPTED, SUCCEEDED, TIMED_OUT
from trainwarden.clients.slurm.client import KEPT_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Of what a command prints, the first part and the last part are kept, each of this size.
KEPT_BYTES = 512 * 1024
# Between SIGTERM and SIGKILL.
END_SECONDS = 10.0
_CHUNK = 65536


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command: without those of the service's own job or run, and without secrets."""
    kept = KEPT_VARIABLES | {"LANG", "LC_ALL", "SHELL", "TZ"}
    return {name: value for name, value in environment.items() if name in kept}


class Execution:
    """A running command, read by a thread of its own.

    Args:
        argv: program and arguments.
        timeout: seconds until it is ended.
        directory: working directory.
        output: the file for what it prints; must not exist.

    Attributes:
        first: the beginning of what it printed, at most 4 KiB.

    Raises:
        OSError: it cannot be started, and nothing was.
    """

    def __init__(self, argv: Sequence[str], timeout: float, directory: str, output: Path) -> None:
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._why = ""
        self._killed_at: float | None = None
        self.first = b""
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=command_environment(os.environ),
                cwd=directory,
                start_new_session=True,
            )
        except OSError:
            os.close(file)
            with contextlib.suppress(OSError):
                output.unlink()
            raise
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, file), daemon=True)
        self._reader.start()

    def ended(self) -> tuple[str, str] | None:
        """Return state and detail once it has ended; else enforce its time limit and return None."""
        now = time.monotonic()
        # Not reaped yet: its number, and that of its group, is still its own.
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if self._killed_at is None and now >= self._deadline:
                self._why = TIMED_OUT
                self._terminate(now)
            elif self._killed_at is not None and now >= self._killed_at:
                self._signal(signal.SIGKILL)
            return None
        # What it left behind holds its output open; it ends with the command.
        self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._reader.join(END_SECONDS)
        if self._why == TIMED_OUT:
            return TIMED_OUT, f"not ended within {self._timeout:g} s"
        if self._why == INTERRUPTED:
            return INTERRUPTED, "the service was stopped"
        if status == 0:
            return SUCCEEDED, ""
        reason = f"exit status {status}" if status > 0 else f"ended by signal {-status}"
        return FAILED, reason

    def stop(self) -> None:
        """End it, because the service ends."""
        if self._killed_at is None:
            self._why = INTERRUPTED
            self._terminate(time.monotonic())

    def _terminate(self, now: float) -> None:
        self._killed_at = now + END_SECONDS
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def _read(self, pipe: IO[bytes], file: int) -> None:
        """Copy the output; beyond the first part keep the last in memory, and write that at the end."""
        size, last, kept = 0, deque[bytes](), 0
        try:
            with pipe:
                while data := os.read(pipe.fileno(), _CHUNK):
                    self.first = (self.first + data)[:4096] if len(self.first) < 4096 else self.first
                    room = max(0, KEPT_BYTES - size)
                    if room:
                        _write(file, data[:room])
                    size += len(data)
                    if rest := data[room:]:
                        last.append(rest)
                        kept += len(rest)
                    while last and kept - len(last[0]) >= KEPT_BYTES:
                        kept -= len(last.popleft())
            if (left_out := size - KEPT_BYTES - kept) > 0:
                _write(file, f"\n… {left_out} bytes left out …\n".encode())
            for data in last:
                _write(file, data)
        finally:
            os.close(file)


def _write(file: int, data: bytes) -> None:
    # A full disk costs the output, not the command.
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(file, data) :]
