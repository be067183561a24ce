"""Reads the kernel's log: from /dev/kmsg, or from systemd's journal where that may not be read."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients import process
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

log = logging.getLogger(__name__)

# The kernel gives one record a read, and refuses a buffer that is too small for it.
_READ_BYTES = 65536
# A full ring of a large machine is read in several calls, to bound memory.
MAX_LINES = 8192
# journalctl is a process each time: not at every sample.
JOURNAL_INTERVAL_SECONDS = 15.0
JOURNALCTL_SECONDS = 4.0
JOURNAL_FIRST_LINES = 4000
_JOURNALCTL_BYTES = 64 << 20
_JOURNALS = ("var/log/journal", "run/log/journal")
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_KERNEL_FACILITY = 0
_CURSOR = re.compile(r"[!-~]{1,1024}")
# journald stores a line that much later than the kernel logged it, at most.
_JOURNALD_SECONDS = 2.0
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")
_REFUSED = {
    errno.EPERM: "not permitted: kernel.dmesg_restrict is 1, which asks for CAP_SYSLOG",
    errno.EACCES: "not permitted to this user",
    errno.ENOENT: "does not exist here; a container needs it mounted",
}


class KernelLogUnreadable(Exception):
    """The kernel's log cannot be read; the message is the reason."""


@dataclass(frozen=True)
class KernelLine:
    """One line of the kernel's log.

    Attributes:
        sequence: one more than that of the line before, unless lines in between were lost.
        level: 0 emergency, 3 error, 4 warning, 6 information.
        text: the message without its prefix and without a line break at its end.
        logged: when, CLOCK_MONOTONIC in seconds, never ahead of now; see `KernelClock`.
        earliest: it was not logged before this.
    """

    sequence: int
    level: int
    text: str
    logged: float
    earliest: float = 0.0

    @property
    def time(self) -> float:
        """When it was logged, Unix seconds by the clock as it is set now."""
        return unix_time(self.logged)


def unix_time(monotonic: float) -> float:
    """Return the Unix time of a CLOCK_MONOTONIC time, never ahead of now."""
    now = time.time()
    return min(now, now - time.monotonic() + monotonic)


class KernelClock:
    """Converts the times in the kernel's log to CLOCK_MONOTONIC.

    Nothing adjusts the clock of the log, which is minutes off after months. What is read was logged since the log was
    last read to its end: that bounds the error, and corrects it.

    Args:
        monotonic: the clock.

    Attributes:
        drained: when the log was last read to its end; 0 before the first time. Restored with `drift` by a reader that
            goes on where another one ended.
        drift: seconds that the log's clock is behind.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.drained = 0.0
        self.drift = 0.0

    def line(self, sequence: int, boot_seconds: float, level: int, text: str) -> KernelLine:
        """Return the line that was logged at this time of the log's clock and read just now."""
        logged = boot_seconds + self.drift
        bounded = max(self.drained, min(logged, self.monotonic()))
        self.drift += bounded - logged
        return KernelLine(sequence, level, text, bounded, self.drained)

    def position(self) -> dict[str, float]:
        """Return what `restore` takes."""
        return {"drained": self.drained, "drift": self.drift}

    def restore(self, position: Mapping[str, Any]) -> None:
        """Take over the state of the clock; raises `KeyError`, `TypeError` or `ValueError`."""
        drained, drift = float(position["drained"]), float(position["drift"])
        if not (math.isfinite(drift) and -math.inf < drained <= self.monotonic()):
            raise ValueError(f"no times of this boot: {drained}, {drift}")
        self.drained, self.drift = drained, drift


@dataclass(frozen=True)
class Record:
    """A record of /dev/kmsg; `boot_seconds` by the clock of the log, `facility` 0 for the kernel's own."""

    sequence: int
    boot_seconds: float
    facility: int
    level: int
    text: str


def parse_record(line: bytes) -> Record | None:
    """Return the record that begins with this line; None for a continuation and for anything else."""
    match = _RECORD.fullmatch(line)
    if match is None:
        return None
    text = _ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 16)]), match[4])
    priority = int(match[1])  # the level in its lowest three bits, above it the facility
    return Record(
        int(match[2]), int(match[3]) / 1e6, priority >> 3, priority & 7, text.decode("utf-8", "replace").rstrip()
    )


class Kmsg:
    """The kernel's lines in /dev/kmsg, or in a file or FIFO that holds such records. For one thread.

    Lines that a process wrote to it are left out: the kernel never gives them its own facility.

    Attributes:
        lost: lines that the ring dropped, since the first one that was read, before they could be read.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.lost = 0
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""
        self._last: int | None = None
        self._clock = KernelClock(monotonic)
        self._restored = False

    @property
    def position(self) -> dict[str, Any]:
        """Up to where it was read: what `restore` takes."""
        return {"source": "kmsg", "sequence": self._last, **self._clock.position()}

    def restore(self, position: Mapping[str, Any]) -> bool:
        """Go on behind a position of the same boot; return False, and begin at the oldest line, if it is none.

        Raises:
            KeyError, TypeError, ValueError: what was stored is damaged.
        """
        if position["source"] != "kmsg" or position["sequence"] is None:
            return False
        self._clock.restore(position)
        self._last, self._restored = int(position["sequence"]), True
        return True

    def read(self) -> list[KernelLine]:
        """Return the new lines, `MAX_LINES` at most; the first call begins with the oldest in the ring. Never waits.

        Raises:
            KernelLogUnreadable: it cannot be opened or read.
        """
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            return self._new_lines(self._descriptor)
        except OSError as error:
            self.close()
            reason = _REFUSED.get(error.errno or 0, error.strerror or str(error))
            raise KernelLogUnreadable(f"{self._path}: {reason}") from error

    def close(self) -> None:
        """Close the file; the next `read` opens it again and skips the lines that were read before."""
        descriptor, self._descriptor, self._rest = self._descriptor, None, b""
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _new_lines(self, descriptor: int) -> list[KernelLine]:
        lines: list[KernelLine] = []
        newest: int | None = None
        while len(lines) < MAX_LINES:
            now = self._clock.monotonic()
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BrokenPipeError:
                continue  # the ring has dropped the next record: the next read returns the oldest one left
            except BlockingIOError:
                data = b""
            if not data:
                self._clock.drained = now
                break
            *complete, rest = (self._rest + data).split(b"\n")
            self._rest = rest[:_READ_BYTES]
            for found in complete:
                record = parse_record(found)
                if record is not None:
                    newest = record.sequence
                    lines.extend(self._count(record))
        if newest is not None and self._restored:
            self._restored = False
            if self._last is not None and newest < self._last:  # restored from another log: none of this one was read
                self.close()
                self._last, self._clock.drained, self._clock.drift = None, 0.0, 0.0
                return self.read()
        return lines

    def _count(self, record: Record) -> Iterator[KernelLine]:
        if self._last is not None:
            if record.sequence <= self._last:
                return  # read before the file was opened again
            self.lost += record.sequence - self._last - 1
        self._last = record.sequence
        if record.facility == _KERNEL_FACILITY:
            yield self._clock.line(record.sequence, record.boot_seconds, record.level, record.text)


class Journal:
    """The kernel's lines in systemd's journal since the node booted. For one thread.

    Args:
        root: where the node's file system is mounted.
        monotonic: the clock, seconds.
        seconds: deadline of journalctl.
    """

    lost = None  # the journal does not record it

    def __init__(
        self, root: Path, monotonic: Callable[[], float] = time.monotonic, seconds: float = JOURNALCTL_SECONDS
    ) -> None:
        self._root = root
        self._monotonic = monotonic
        self._clock = KernelClock(monotonic)
        self._seconds = seconds
        self._cursor: str | None = None
        self._read_before = -math.inf
        self._read_at: float | None = None
        self._count = 0

    @property
    def position(self) -> dict[str, Any]:
        """Up to where it was read: what `restore` takes."""
        return {"source": "journal", "cursor": self._cursor, **self._clock.position()}

    def restore(self, position: Mapping[str, Any]) -> bool:
        """Go on behind a position of the same boot; return False, and begin as usual, if it is none.

        Raises:
            KeyError, TypeError, ValueError: what was stored is damaged.
        """
        cursor = position.get("cursor")
        if position["source"] != "journal" or not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
            return False
        self._clock.restore(position)
        self._cursor = cursor
        return True

    def read(self) -> list[KernelLine]:
        """Return the new lines, at first the last `JOURNAL_FIRST_LINES`; none within `JOURNAL_INTERVAL_SECONDS`.

        Raises:
            KernelLogUnreadable: journalctl failed, or did not answer.
        """
        now = self._monotonic()
        if self._read_at is not None and now - self._read_at < JOURNAL_INTERVAL_SECONDS:
            return []
        output = self._journalctl()
        self._read_at = now
        lines = [line for entry in output.split(b"\n") if (line := self._line(entry)) is not None]
        self._clock.drained = now - _JOURNALD_SECONDS
        return lines

    def _journalctl(self) -> bytes:
        command = ["journalctl", "--dmesg", "--output=json", "--no-pager", "--quiet"]
        if self._root != Path("/"):
            command.append(f"--root={self._root}")
        command.append(f"--after-cursor={self._cursor}" if self._cursor else f"--lines={JOURNAL_FIRST_LINES}")
        try:
            with calling("journalctl"):
                done = process.run(command, self._seconds, environment=os.environ, limit=_JOURNALCTL_BYTES)
        except process.ProcessError as error:
            raise KernelLogUnreadable(f"journalctl: {error}") from error
        if done.status and self._cursor is not None:
            # A damaged cursor, or one of another journal, is refused each time.
            log.warning("journalctl does not go on behind its last line: %s", process.one_line(_last_line(done.errors)))
            self._cursor, self._read_before = None, self._clock.drained
            return self._journalctl()
        if done.status:
            last = process.one_line(_last_line(done.errors))
            raise KernelLogUnreadable(f"journalctl: ended with status {done.status}: {last}")
        return done.output

    def _line(self, entry: bytes) -> KernelLine | None:
        try:
            fields = json.loads(entry)
            monotonic = int(fields.get("_SOURCE_MONOTONIC_TIMESTAMP") or fields["__MONOTONIC_TIMESTAMP"])
            cursor, message, level = str(fields["__CURSOR"]), fields["MESSAGE"], int(fields.get("PRIORITY", 6))
            # These fields are journald's own, no process can set the first; what one wrote to /dev/kmsg differs in the
            # second.
            kernel = fields["_TRANSPORT"] == "kernel" and int(fields.get("SYSLOG_FACILITY", 0)) == _KERNEL_FACILITY
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # an empty or a half-written line
        self._cursor = cursor
        if not kernel or monotonic / 1e6 <= self._read_before:
            return None
        self._count += 1
        return self._clock.line(self._count, monotonic / 1e6, level, _message(message))


def _last_line(errors: bytes) -> str:
    return errors.decode("utf-8", "replace").strip().rpartition("\n")[2]


def kmsg_readable(path: Path) -> bool:
    """Return whether /dev/kmsg can be opened: access(2) does not take kernel.dmesg_restrict into account."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def journal_readable(root: Path) -> bool:
    """Return whether there is a system journal that this user may read, and journalctl."""
    if shutil.which("journalctl") is None:
        return False
    # journalctl itself exits with 0 where it may read nothing.
    return any(
        os.access(journal, os.R_OK) for place in _JOURNALS for journal in (root / place).glob("*/system.journal")
    )


def _message(value: Any) -> str:
    """Return a journal message: a list of numbers where it holds bytes that are no text, null where it is too long."""
    if isinstance(value, list):
        return bytes(byte & 255 for byte in value if isinstance(byte, int)).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
