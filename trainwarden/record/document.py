"""JSON that somebody else wrote: read without trust, each key on its own."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwarden.record.clock import from_iso

MAX_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Unreadable:
    """A file is there, and what it says cannot be known."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class FileContent:
    """A file's bytes and when they were last changed, Unix seconds."""

    data: bytes
    modified: float


@dataclass(frozen=True)
class Document:
    """A JSON object. A key that holds something unexpected reads as absent and adds a line to `problems`."""

    values: Mapping[str, Any]
    modified: float
    problems: list[str] = field(default_factory=list)

    def text(self, key: str) -> str | None:
        """A string, or a number written as one."""
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is None or isinstance(value, str):
            # A lone surrogate is valid JSON and cannot be encoded again by whoever passes it on.
            return value and value.encode("utf-8", "replace").decode()
        self._unexpected(key, "a string")
        return None

    def number(self, key: str) -> float | None:
        """A finite number."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**1000:
            return float(value)
        self._unexpected(key, "a finite number")
        return None

    def integer(self, key: str) -> int | None:
        """A whole number that is not negative."""
        value = self.number(key)
        if value is None:
            return None
        if value >= 0 and value == math.floor(value):
            return int(self.values[key])
        self._unexpected(key, "a whole number, 0 or more")
        return None

    def time(self, key: str) -> float | None:
        """Unix seconds, from ISO 8601 or from a number of them."""
        value = self.values.get(key)
        if not isinstance(value, str):
            return self.number(key)
        seconds = from_iso(value)
        if seconds is None:
            self._unexpected(key, "an ISO 8601 time")
        return seconds

    def child(self, key: str) -> "Document | None":
        """An object inside; what is odd in it is a problem of this document."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return Document(value, self.modified, self.problems)
        self._unexpected(key, "an object")
        return None

    def children(self, key: str) -> Iterator["Document"]:
        """The objects of a list inside; nothing if there is no such list."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            self._unexpected(key, "a list")
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield Document(item, self.modified, self.problems)

    def _unexpected(self, key: str, expected: str) -> None:
        self.problems.append(f"{key}: {str(self.values.get(key))[:60]!r} is not {expected}")


def read_file(path: Path) -> FileContent | Unreadable | None:
    """The content of a plain file; None if there is none.

    Users own records and services read them: a link or a pipe in place of a file is not followed or waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        return Unreadable(path, "is a symbolic link, not a file" if is_link else error.strerror or str(error))
    try:
        with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return Unreadable(path, "is not a plain file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Unreadable(path, error.strerror or str(error))
    if len(data) > MAX_BYTES:
        return Unreadable(path, f"is larger than {MAX_BYTES} bytes")
    return FileContent(data, status.st_mtime)


def parse(content: FileContent, path: Path) -> Document | Unreadable:
    """The JSON object that `content` holds."""
    try:
        values = json.loads(content.data)
    except (ValueError, RecursionError) as error:
        return Unreadable(path, f"is not JSON: {error}" if content.data else "is empty")
    if not isinstance(values, dict):
        return Unreadable(path, f"holds a JSON {type(values).__name__}, not an object")
    return Document(values, content.modified)


def read_document(path: Path) -> Document | Unreadable | None:
    """The JSON object that a file holds; None if there is no file."""
    content = read_file(path)
    return parse(content, path) if isinstance(content, FileContent) else content
