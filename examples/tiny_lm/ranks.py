"""Starts the ranks of one machine, as torchrun would, and ends the others when one fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from trainwarden.stack.ports import free_port

# How long the others may take to fail on their own account: what they see belongs in their logs.
_GRACE_SECONDS = 5.0
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.05


class Ranks:
    """The rank processes of one machine."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        environment = {**os.environ, "WORLD_SIZE": str(count)}
        environment.setdefault("MASTER_ADDR", "127.0.0.1")
        environment.setdefault("MASTER_PORT", str(free_port()))
        # Two ranks share the machine's cores; a pool of threads in each would only make them wait for one another.
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._asked_to_end: int | None = None
        signal.signal(signal.SIGTERM, self._pass_on)
        self._processes = [
            subprocess.Popen(
                [sys.executable, *command], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            )
            for rank in range(count)
        ]

    def wait(self) -> int:
        """Wait until all have ended; the exit status of the first that failed, as a shell gives it, else 0."""
        first_failure: int | None = None
        failed_at = 0.0
        while any(process.poll() is None for process in self._processes):
            failed = [process.returncode for process in self._processes if process.returncode]
            if first_failure is None and failed:
                first_failure, failed_at = failed[0], time.monotonic()
            if first_failure is not None:
                self._end_the_others(time.monotonic() - failed_at)
            time.sleep(_POLL_SECONDS)
        if self._asked_to_end is not None:
            return 128 + self._asked_to_end
        last = next((process.returncode for process in self._processes if process.returncode), 0)
        status = last if first_failure is None else first_failure
        return status if status >= 0 else 128 - status

    def _end_the_others(self, seconds: float) -> None:
        if seconds > _GRACE_SECONDS + _KILL_SECONDS:
            self._send(signal.SIGKILL)
        elif seconds > _GRACE_SECONDS:
            self._send(signal.SIGTERM)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._asked_to_end = number
        self._send(signal.Signals(number))

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)
                # A stopped process hears nothing before it goes on.
                process.send_signal(signal.SIGCONT)
