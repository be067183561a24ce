"""One child process that samples: what it says, and how it is brought to its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

COMMAND = (sys.executable, "-m", "trainwarden_exporter.sampling.child")
END_SECONDS = 5.0
TERMINATE_SECONDS = 1.0
# Hundreds of devices in one sample are not half of it.
MAX_LINE_BYTES = 16 * 2**20
_READ_BYTES = 2**20


class NoMessage(Exception):
    """What the child says is none of ours."""


class ChildProcess:
    """A child that was told what to do. `lines` and `close` are for one thread, `end` for any.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, order: bytes) -> None:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101  # for mypy: it was asked for
        assert self._process.stdout is not None  # noqa: S101  # likewise
        self._input, self._output = self._process.stdin, self._process.stdout
        self._rest = b""
        self._ready = select.poll()  # unlike select, it takes descriptors above 1023
        self._ready.register(self._output, select.POLLIN)
        with contextlib.suppress(OSError):  # it has ended already, which will be seen
            self._input.write(order)
            self._input.flush()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def lines(self, seconds: float) -> list[bytes] | None:
        """Return what it said, after this time at the latest; None when it will say nothing more.

        Raises:
            NoMessage: a line of it has no end.
        """
        if not self._ready.poll(seconds * 1000):
            return []
        data = os.read(self._output.fileno(), _READ_BYTES)
        if not data:
            return None
        *complete, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise NoMessage("a line of its process has no end")
        return complete

    def drain(self) -> None:
        """Listen while somebody ends it: if nobody did, it would end in the middle of letting go of its devices."""
        deadline = time.monotonic() + END_SECONDS + TERMINATE_SECONDS
        with contextlib.suppress(NoMessage):
            while time.monotonic() < deadline and self.lines(0.5) is not None:
                pass

    def hangs(self) -> bool:
        """Tell whether it is still there."""
        return self._process.poll() is None

    def end(self) -> bool:
        """Ask it to end, then tell it to; False if it hangs.

        Never with SIGKILL: killed in the middle of a call, it may leave a GPU unusable.
        """
        with contextlib.suppress(OSError):
            self._input.close()
        if self._waited(END_SECONDS):
            return True
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # one that was stopped acts upon neither otherwise
        return self._waited(TERMINATE_SECONDS)

    def why_ended(self) -> str:
        """Return how it ended, once it has."""
        status = self._process.returncode
        return "does not end" if status is None else f"ended with status {status}"

    def close(self) -> None:
        """Listen no more: if it ever goes on, it ends when it says something."""
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()

    def _waited(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
