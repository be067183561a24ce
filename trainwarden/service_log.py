"""The log of a service on standard error, in which no text of a user can forge or hide a line."""

from __future__ import annotations

import json
import logging
import sys
import time

FORMATS = ("text", "logfmt", "json")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Formats each record as one line. The lines of a traceback follow it, indented, as no record's own line is."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and the lines of its traceback."""
        record.exc_text = None  # another handler has left its own form there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name in `logging`
        """Return the record's line, and behind it the fields of its attribute `fields`."""
        line = super().formatMessage(record)
        if fields := fields_of(record):
            line += f" [{' '.join(f'{name}={_logfmt(text)}' for name, text in fields.items())}]"
        return escape_controls(line)

    def formatException(self, ei: object) -> str:  # noqa: N802  # the name in `logging`
        """Return the lines of a traceback."""
        return _indented(super().formatException(ei))  # type: ignore[arg-type]  # as `logging` passes it

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # the name in `logging`
        """Return the lines of a stack."""
        return _indented(super().formatStack(stack_info))


class FieldsFormatter(logging.Formatter):
    """Formats each record as one line of fields, named as Prometheus names them: JSON, or logfmt."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self.log_format = log_format

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's one line; a traceback is a field of it."""
        fields = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        if self.log_format == "json":
            return json.dumps(fields)
        return " ".join(f"{name}={_logfmt(text)}" for name, text in fields.items())


def log_to_stderr(level: str | int, line_format: str = LOG_FORMAT, log_format: str = "text") -> None:
    """Log to standard error from `level` on, escaped, in one of `FORMATS`; `line_format` is that of text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(line_format) if log_format == "text" else FieldsFormatter(log_format))
    logging.basicConfig(level=level, handlers=[handler])


def current_format() -> str:
    """Return the format that `log_to_stderr` was called with, for processes that this one starts."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    return next((each.log_format for each in formatters if isinstance(each, FieldsFormatter)), "text")


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """Return what `extra={"fields": …}` gave a record; what is None is left out."""
    fields = getattr(record, "fields", {})
    return {name: str(value) for name, value in fields.items() if value is not None}


def escape_controls(text: str) -> str:
    """Return the text on one line: line ends, terminal escapes and other characters that do not print are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _indented(text: str) -> str:
    # Split at line feeds alone: any other line end is escaped.
    return "\n".join(f"  {escape_controls(line)}" for line in text.split("\n"))


def _utc(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"


def _logfmt(text: str) -> str:
    is_word = text.isprintable() and text.isascii() and not set(text) & set(' "=\\')
    return text if is_word and text else json.dumps(text)
