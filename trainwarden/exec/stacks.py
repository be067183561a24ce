"""Where the command of `trainwarden exec` stands, when that is requested before it is ended.

A command that uses the library answers itself. Another one is sent a signal only if the user named one that it writes
its stacks upon, and the kernel shows that it handles it: by default a signal would end it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainwarden.identity import host_name, local_rank
from trainwarden.record.capture import LIMITS, NATIVE, NODE, STACKS, CaptureRequest, StacksHeader, write_answer
from trainwarden.record.folder import encode
from trainwarden.training.stacks import CaptureRequests, can_read_native_frames, kernel_state, node_report, output_of

VARIABLE = "TRAINWARDEN_STACKS_SIGNAL"
_NAMES = ("USR1", "USR2")
# How long the command may take to write, and how long it is silent once it has.
_WRITE_SECONDS, _QUIET_SECONDS, _POLL_SECONDS = 3.0, 0.3, 0.05
_THREAD = re.compile(rb"^(?:Current thread|Thread) 0x", re.MULTILINE)


class CommandStacks:
    """Answers requests for the stacks of a command.

    Args:
        folder: of the run.
        key: of the attempt.
        rank: of the command.
        environ: variables of the command.
        answers_itself: returns whether the command writes the record, and so its stacks.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        rank: int,
        environ: Mapping[str, str],
        answers_itself: Callable[[], bool],
    ) -> None:
        self._folder = folder
        self._key = key
        self._rank = rank
        self._environ = environ
        self._answers_itself = answers_itself
        self._requests = CaptureRequests(folder, key, of_node=False)
        self._output: bytearray | None = None

    def add(self, data: bytes) -> None:
        """Take what the command prints; kept while its stacks are expected."""
        output = self._output
        if output is not None and len(output) < LIMITS[STACKS]:
            output += data

    def check(self, pid: int) -> None:
        """Answer a new request about the process `pid`, in a thread of its own."""
        request = self._requests.next()
        if request is None or self._answers_itself():
            return
        worker = threading.Thread(target=self._answer, args=(pid, request), name="trainwarden-capture", daemon=True)
        with contextlib.suppress(RuntimeError):
            worker.start()

    def _answer(self, pid: int, request: CaptureRequest) -> None:
        wanted: dict[str, Callable[[], bytes]] = {}
        if can_read_native_frames():
            wanted[NATIVE] = lambda: output_of(["py-spy", "dump", "--native", "--subprocesses", "--pid", str(pid)])
        if (local_rank(self._environ) or 0) == 0:
            wanted[NODE] = node_report
        state, waits_in = kernel_state(pid)
        header = StacksHeader(
            rank=self._rank,
            attempt_key=self._key,
            intent=request.intent,
            time=time.time(),
            host=host_name(),
            pid=pid,
            state=state,
            waits_in=waits_in,
            follow=tuple(wanted),
        )
        with contextlib.suppress(OSError):
            write_answer(self._folder, self._rank, STACKS, encode(header.to_json()) + self._written(pid))
        for kind, make in wanted.items():
            with contextlib.suppress(OSError):
                write_answer(self._folder, self._rank, kind, make())

    def _written(self, pid: int) -> bytes:
        """Have the command write its stacks, and return them; empty where it cannot be asked."""
        name = self._environ.get(VARIABLE, "").upper().removeprefix("SIG")
        if name not in _NAMES:
            return b""
        number = signal.Signals[f"SIG{name}"]
        if not _handles(pid, number):
            return b""
        self._output = output = bytearray()
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        deadline, size, since = time.monotonic() + _WRITE_SECONDS, 0, time.monotonic()
        while (now := time.monotonic()) < deadline:
            if len(output) != size:
                size, since = len(output), now
            elif size and now - since >= _QUIET_SECONDS and _THREAD.search(output):
                break
            time.sleep(_POLL_SECONDS)
        self._output = None
        found = _THREAD.search(output)
        return bytes(output[found.start() :]) if found else b""


def _handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
