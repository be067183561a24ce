"""What a person in front of the terminal sees: one line per thing that happened, with the seconds since the start."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from typing import TextIO

from trainwarden.stack.slack_sink import Message

_WIDTH = 100
_COLORS = {"alert": "31", "slack": "35", "decision": "33", "restart": "33", "good": "32", "run": "36"}
# Control characters of a foreign text must not reach the terminal; line ends and tabs are harmless.
_HARMLESS = str.maketrans({code: "?" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"})


class Terminal:
    """Writes lines as they come, from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._colored = self._stream.isatty()

    def say(self, kind: str, text: str) -> None:
        """One event, e.g. `say("alert", "TrainRunStalled is firing")`."""
        seconds = time.monotonic() - self._started
        label = f"{kind:<9}"
        if self._colored and kind in _COLORS:
            label = f"\033[{_COLORS[kind]}m{label}\033[0m"
        self.write(f"[{seconds:6.1f}s] {label} {text.translate(_HARMLESS)}\n")

    def box(self, message: Message) -> None:
        """A Slack message, as it would look there."""
        self.say("slack", message.title)
        lines = []
        for line in message.plain().translate(_HARMLESS).splitlines():
            lines += textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
        bar = f"\033[{_COLORS['slack']}m│\033[0m" if self._colored else "│"
        self.write("".join(f"{'':10}{bar} {line}\n" for line in lines))

    def write(self, text: str) -> None:
        """Raw text."""
        with self._lock:
            self._stream.write(text)
            self._stream.flush()
