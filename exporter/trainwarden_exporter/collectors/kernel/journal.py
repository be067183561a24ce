"""Reads the kernel's log from the journal of systemd, where /dev/kmsg may not be read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.kernel.kmsg import KernelLogUnreadable
from trainwarden_exporter.collectors.kernel.line import KernelLine
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable

# A process each time: not at every sample.
CADENCE_SECONDS = 15.0
TIMEOUT_SECONDS = 4.0
FIRST_LINES = 4000
_JOURNALS = ("var/log/journal", "run/log/journal")


class Journal:
    """The kernel's lines since the node booted, the last four thousand at first. For one thread.

    Args:
        root: where the node's file system is mounted.
        monotonic: the clock, seconds.
    """

    lost = None  # the journal does not say

    def __init__(self, root: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._cursor: str | None = None
        self._read_at: float | None = None
        self._count = 0

    def read(self) -> list[KernelLine]:
        """Return what is new; nothing where it was asked only just now.

        Raises:
            KernelLogUnreadable: journalctl failed, or did not answer.
        """
        now = self._monotonic()
        if self._read_at is not None and now - self._read_at < CADENCE_SECONDS:
            return []
        output = self._ask()
        self._read_at = now
        return [line for entry in output.split(b"\n") if (line := self._line(entry)) is not None]

    def _ask(self) -> bytes:
        command = ["journalctl", "--dmesg", "--output=json", "--no-pager", "--quiet"]
        if self._root != Path("/"):
            command.append(f"--root={self._root}")
        command.append(f"--after-cursor={self._cursor}" if self._cursor else f"--lines={FIRST_LINES}")
        try:
            with calling("journalctl"):
                done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_SECONDS)
        except OSError as error:
            raise KernelLogUnreadable(f"journalctl: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise KernelLogUnreadable(f"journalctl: no answer within {TIMEOUT_SECONDS:.0f} s") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise KernelLogUnreadable(f"journalctl: ended with status {done.returncode}: {said}")
        return done.stdout

    def _line(self, text: bytes) -> KernelLine | None:
        try:
            entry = json.loads(text)
            monotonic = int(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"])
            cursor, message, level = str(entry["__CURSOR"]), entry["MESSAGE"], int(entry.get("PRIORITY", 6))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # an empty line, or one that was written only half
        self._cursor = cursor
        self._count += 1
        return KernelLine(self._count, monotonic / 1e6, level, _text(message))


def journal_readable(root: Path) -> bool:
    """Tell whether there is a journal of the system that this user may read, and something to read it with."""
    if shutil.which("journalctl") is None:
        return False
    # journalctl itself ends in success where it may see nothing.
    return any(
        os.access(journal, os.R_OK) for place in _JOURNALS for journal in (root / place).glob("*/system.journal")
    )


def _text(message: Any) -> str:
    """A message with bytes that are no text comes as a list of numbers; one that is too long as null."""
    if isinstance(message, list):
        return bytes(byte & 255 for byte in message if isinstance(byte, int)).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""
