"""One child process that samples: its messages and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time

COMMAND = (sys.executable, "-m", "trainwarden_exporter.sampling.child_main")
END_SECONDS = 5.0
TERMINATE_SECONDS = 1.0
# Twice a sample of hundreds of devices.
MAX_LINE_BYTES = 16 * 2**20
_READ_BYTES = 2**20
# The devices of a node are sampled at the same moment: their lines are read at once, instead of waking up for each.
_GATHER_SECONDS = 0.05


class InvalidMessage(Exception):
    """The child wrote what is no message."""


class ChildProcess:
    """A running child. `lines` and `close` are for one thread, `end` for any.

    Args:
        first_line: of its input, see `ChildSpec.line`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, first_line: bytes) -> None:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101  # for mypy: stdin is a pipe
        assert self._process.stdout is not None  # noqa: S101  # as above
        self._input, self._output = self._process.stdin, self._process.stdout
        self._rest = b""
        self._input_lock = threading.Lock()
        self._ready = select.poll()  # unlike select, it takes descriptors above 1023
        self._ready.register(self._output, select.POLLIN)
        with contextlib.suppress(OSError):  # it has ended already: the next read returns nothing
            self._input.write(first_line)
            self._input.flush()
        os.set_blocking(self._input.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Write a line to its input, unless that is full or closed: one that hangs must not hold up a scrape."""
        with self._input_lock, contextlib.suppress(OSError):
            if not self._input.closed:
                os.write(self._input.fileno(), line)

    def lines(self, seconds: float) -> list[bytes] | None:
        """Return the lines that it wrote, after `seconds` at the latest; None at the end of its output.

        Raises:
            InvalidMessage: a line is longer than `MAX_LINE_BYTES`.
        """
        if not self._ready.poll(seconds * 1000):
            return []
        time.sleep(_GATHER_SECONDS)
        data = os.read(self._output.fileno(), _READ_BYTES)
        if not data:
            return None
        *complete, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise InvalidMessage("a line of its process has no end")
        return complete

    def drain(self) -> None:
        """Read its output while another thread ends it: a full pipe would end it while it releases its devices."""
        deadline = time.monotonic() + END_SECONDS + TERMINATE_SECONDS
        with contextlib.suppress(InvalidMessage):
            while time.monotonic() < deadline and self.lines(0.5) is not None:
                pass

    def hangs(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def end(self) -> bool:
        """Close its input, then terminate it; return False if it hangs.

        Never with SIGKILL: killed in the middle of a call, it may leave a GPU unusable.
        """
        with self._input_lock, contextlib.suppress(OSError):
            self._input.close()
        if self._waited(END_SECONDS):
            return True
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a stopped process acts upon neither otherwise
        return self._waited(TERMINATE_SECONDS)

    def why_ended(self) -> str:
        """Return how it ended."""
        status = self._process.returncode
        return "does not end" if status is None else f"ended with status {status}"

    def close(self) -> None:
        """Close its pipes: if it ever goes on, its next message ends it."""
        for pipe in (self._input, self._output):
            with self._input_lock, contextlib.suppress(OSError):
                pipe.close()

    def _waited(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
