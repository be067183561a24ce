"""The end of a command's output, and the tracebacks in it: enough to find why it failed."""

from __future__ import annotations

from trainwarden.failures.quotation import unlabelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_BYTES = 64 * 1024

_TRACEBACK = "Traceback (most recent call last):"
# Further lines of an exception's message.
_MESSAGE_LINES = 20


class Trace:
    """One Python traceback: the whole text, and its last line taken apart."""

    # Shell commands need it and have no time to load dataclasses.
    __slots__ = ("exception_type", "message", "text")

    def __init__(self, text: str, exception_type: str | None, message: str) -> None:
        self.text = text
        self.exception_type = exception_type
        self.message = message

    @property
    def reason(self) -> str:
        """`Type: message`, as it was printed."""
        if self.exception_type is None or self.message == self.exception_type:
            return self.message
        return f"{self.exception_type}: {self.message}"


class Tail:
    """Keeps the last 64 KiB of the output."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add some output."""
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]

    def text(self) -> str:
        """Return the kept output; each line ends with a line feed.

        Lines of ASCII in UTF-16 are read. Other NULs, as a cut file has them, end a line.
        """
        kept = bytes(self._kept[-KEPT_BYTES:])
        nul = b"" if kept.count(0) > len(kept) // 4 else b"\n"
        kept = kept.replace(b"\0", nul)
        return kept.removeprefix(b"\xff\xfe").decode("utf-8", "replace").replace("\r", "\n")


def trace_with(lines: Sequence[str], index: int) -> Trace | None:
    """Return the traceback that ends with a line, or in whose message it is; None without one."""
    label, _ = unlabelled(lines[index])
    own = [text for other, text in map(unlabelled, lines[: index + 1]) if other == label]
    start = next((each for each in range(len(own) - 1, -1, -1) if own[each].strip() == _TRACEBACK), None)
    if start is None:
        return None
    end = _end(own, start)
    if end is None or len(own) - 1 - end > _MESSAGE_LINES:
        return None
    last = own[end].strip()
    kind, message = raised(last)
    if len(own) - 1 > end:
        # A later line of the message.
        kind, message = None, own[-1].strip()
    return Trace("\n".join(own[start:]), kind, message)


def raised(line: str) -> tuple[str | None, str]:
    """Return type and message of the last line of a traceback; None and the line if it is none."""
    kind, colon, message = line.strip().partition(":")
    if not kind.replace(".", "").isidentifier() or (colon and message and not message.startswith(" ")):
        return None, line.strip()
    return kind, message.strip() or kind


def _end(lines: Sequence[str], start: int) -> int | None:
    """Return the index of a traceback's last line, the one with the exception."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    return next((index for index in range(start + 1, len(lines)) if lines[index][: indent + 1].strip()), None)
