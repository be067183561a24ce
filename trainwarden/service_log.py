"""The log of a service on standard error, in which no text of a user can forge or hide a line."""

from __future__ import annotations

import logging
import sys

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Formats each record as one line. The lines of a traceback follow it, indented, as no record's own line is."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and the lines of its traceback."""
        record.exc_text = None  # another handler has left its own form there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name in `logging`
        """Return the record's line."""
        return escape_controls(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802  # the name in `logging`
        """Return the lines of a traceback."""
        return _indented(super().formatException(ei))  # type: ignore[arg-type]  # as `logging` passes it

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # the name in `logging`
        """Return the lines of a stack."""
        return _indented(super().formatStack(stack_info))


def log_to_stderr(level: str | int, line_format: str = LOG_FORMAT) -> None:
    """Log to standard error from `level` on, escaped."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(line_format))
    logging.basicConfig(level=level, handlers=[handler])


def escape_controls(text: str) -> str:
    """Return the text on one line: line ends, terminal escapes and other characters that do not print are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _indented(text: str) -> str:
    # Split at line feeds alone: any other line end is escaped.
    return "\n".join(f"  {escape_controls(line)}" for line in text.split("\n"))
