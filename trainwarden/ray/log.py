"""The log of the functions in this package: `$TRAINING_MONITOR_LOG_LEVEL` and `$TRAINING_MONITOR_LOG_FILE`."""

from __future__ import annotations

import logging
import os
import sys

from trainwarden.service_log import LineFormatter

LEVEL, FILE = "TRAINING_MONITOR_LOG_LEVEL", "TRAINING_MONITOR_LOG_FILE"
_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

log = logging.getLogger("trainwarden.ray")


def setup_logging(level: str | None = None, log_file: str | None = None) -> None:
    """Log to a file, else to standard output.

    Args:
        level: DEBUG, INFO, WARNING or ERROR; else `$TRAINING_MONITOR_LOG_LEVEL`, else INFO.
        log_file: to append to; else `$TRAINING_MONITOR_LOG_FILE`.

    Raises:
        ValueError: it is none of these levels.
        OSError: the file cannot be opened.
    """
    wanted = (level or os.environ.get(LEVEL) or "INFO").upper()
    if wanted not in _LEVELS:
        raise ValueError(f"{LEVEL}={wanted!r}, expected one of {', '.join(_LEVELS)}")
    path = log_file or os.environ.get(FILE)
    handler: logging.Handler = logging.FileHandler(path) if path else logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter(_FORMAT))
    for other in list(log.handlers):
        log.removeHandler(other)
        other.close()
    log.addHandler(handler)
    log.setLevel(wanted)
    log.propagate = False


def ensure_logging() -> None:
    """Set up logging at the first use, unless the program has done that for itself and sets neither variable."""
    if log.handlers:
        return
    stated = bool(os.environ.get(LEVEL) or os.environ.get(FILE))
    if not stated and logging.getLogger().handlers:
        return
    try:
        setup_logging()
    except (ValueError, OSError) as error:
        # A monitor that does not log still monitors.
        print(f"trainwarden.ray: {error}", file=sys.stderr)
        log.addHandler(logging.NullHandler())
