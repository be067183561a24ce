"""The end of a command's output: enough of it to find why it failed."""

from __future__ import annotations

import re

KEPT_BYTES = 64 * 1024

_TRACEBACK = "Traceback (most recent call last):"
# Labels that launchers put before each line: `[rank0]: ` of torch, `0: ` of srun.
_LABEL = re.compile(r"^(?:\[[\w: -]{1,40}\]: ?| *\d{1,6}: )")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: |:?$)")
# Exceptions that report the failure of another process, without its reason.
_SECONDHAND = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")
_MAX_LINES = 400


class Trace:
    """One Python traceback: the whole text, and its last line taken apart."""

    # Shell commands need it and have no time to load dataclasses.
    __slots__ = ("exception_type", "message", "text")

    def __init__(self, text: str, exception_type: str | None, message: str) -> None:
        self.text = text
        self.exception_type = exception_type
        self.message = message

    @property
    def secondhand(self) -> bool:
        """Whether it only reports the failure of another process."""
        return (self.exception_type or "").rpartition(".")[2] in _SECONDHAND


class Tail:
    """Keeps the last 64 KiB of the output."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add some output."""
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]

    def lines(self) -> list[str]:
        """Return the last lines, in their order, without empty ones, labels and colours."""
        text = bytes(self._kept[-KEPT_BYTES:]).decode("utf-8", "replace")
        lines = (_ESCAPE.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text))
        return [_LABEL.sub("", line, count=1) for line in lines if line][-_MAX_LINES:]

    def trace(self) -> Trace | None:
        """Return the last traceback, those with a reason first, or None."""
        lines = self.lines()
        starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
        traces = [trace for start in reversed(starts) if (trace := _trace(lines[start:]))]
        return next((trace for trace in traces if not trace.secondhand), traces[0] if traces else None)


def _trace(lines: list[str]) -> Trace | None:
    indent = len(lines[0]) - len(lines[0].lstrip())
    for index, line in enumerate(lines[1:], 1):
        if line[: indent + 1].strip():
            raised = _RAISED.match(line.strip())
            kind = raised[1] if raised else None
            message = line.strip()[raised.end() :] if raised else line.strip()
            return Trace("\n".join(lines[: index + 1]), kind, message or line.strip())
    return None
