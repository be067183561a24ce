"""Files that keep the output of a command."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

LOG_BYTES = 256 * 2**20
_KEPT_LOGS = 3
_ASIDE = re.compile(r"training_log_\d+_\d+\.txt(\.1)?")


class LogFile:
    """A file that bytes are appended to. Past `limit` it is renamed to `<name>.1`, one kept, and begun anew.

    Raises:
        OSError: it cannot be opened; nothing after that raises.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        self._limit = limit
        self.write_errors = 0
        self.last_error = ""
        self._descriptor = _open(path)

    def write(self, data: bytes) -> None:
        """Append `data`; what cannot be written is counted and dropped."""
        try:
            if self._limit is not None and os.fstat(self._descriptor).st_size >= self._limit:
                self._begin_anew()
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            self.write_errors += 1
            self.last_error = error.strerror or str(error)

    def is_same_as(self, other: LogFile) -> bool:
        """Return whether both write to one file."""
        return os.path.samestat(os.fstat(self._descriptor), os.fstat(other._descriptor))  # of this class

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _begin_anew(self) -> None:
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        descriptor = _open(self.path)
        os.close(self._descriptor)
        self._descriptor = descriptor


def put_aside(log: Path, number: int) -> None:
    """Rename the log of the attempt before `number`; the logs of the last few attempts are kept.

    Raises:
        OSError: the folder cannot be written.
    """
    if not log.exists():
        return
    name = f"training_log_{int(log.stat().st_mtime)}_{number}.txt"
    with contextlib.suppress(FileNotFoundError):
        log.with_name(f"{log.name}.1").replace(log.with_name(f"{name}.1"))
    log.replace(log.with_name(name))
    old = sorted((path for path in log.parent.iterdir() if _ASIDE.fullmatch(path.name)), key=_age)
    names = [path for path in old if path.suffix == ".txt"]
    for path in names[:-_KEPT_LOGS]:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.1").unlink(missing_ok=True)


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link or a pipe is followed: the user has chosen the path.
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
