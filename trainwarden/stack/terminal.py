"""Prints events and the command's output to the terminal: one line each, with the seconds since the start."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TextIO

from trainwarden.stack.slack_sink import Message

_WIDTH = 100
_CHUNK_BYTES = 256 * 1024
_COLORS = {"alert": "31", "slack": "35", "decision": "33", "restart": "33", "good": "32", "run": "36"}
# Control characters of foreign text must not reach the terminal; line ends and tabs are harmless.
_HARMLESS = str.maketrans({code: "?" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"})


class Terminal:
    """Writes lines as they come, from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._colored = self._stream.isatty()

    def event(self, kind: str, text: str) -> None:
        """Print one event, e.g. `event("alert", "TrainRunStalled is firing")`."""
        seconds = time.monotonic() - self._started
        label = f"{kind:<9}"
        if self._colored and kind in _COLORS:
            label = f"\033[{_COLORS[kind]}m{label}\033[0m"
        self.write(f"[{seconds:6.1f}s] {label} {text.translate(_HARMLESS)}\n")

    def box(self, message: Message) -> None:
        """Print a Slack message in a box."""
        self.event("slack", message.title)
        lines = []
        for line in message.plain().translate(_HARMLESS).splitlines():
            lines += textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
        bar = f"\033[{_COLORS['slack']}m│\033[0m" if self._colored else "│"
        self.write("".join(f"{'':10}{bar} {line}\n" for line in lines))

    def write(self, text: str) -> None:
        """Print raw text."""
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


class CommandOutput:
    """Copies a log file to the terminal as it grows, across its replacement by the next attempt.

    Without a terminal it does nothing.
    """

    def __init__(self, path: Path, terminal: Terminal | None) -> None:
        self._path = path
        self._terminal = terminal
        self._offset = 0
        self._inode: int | None = None
        self._partial = b""

    def poll(self) -> None:
        """Print the lines added since the last call."""
        if self._terminal is None:
            return
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self._partial = inode, 0, b""
                file.seek(self._offset)
                data = file.read(_CHUNK_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._terminal.event("output", line.decode("utf-8", "replace").rstrip("\r"))
