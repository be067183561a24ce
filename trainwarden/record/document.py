"""JSON that another process wrote: read without trust, each key on its own.

Shell commands load this: dataclasses, typing and pathlib take too long to import.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from trainwarden.record.clock import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MAX_BYTES = 4 * 2**20
_decode = json.JSONDecoder().raw_decode
_TOO_LARGE = 2**1000
_TOO_LARGE_INTEGER = 2**63
# The years 1 to 9999, in Unix seconds: other numbers cannot be written as a time again.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


class Unreadable:
    """A file that exists and cannot be read; `reason` is one line."""

    __slots__ = ("path", "reason")

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    def __repr__(self) -> str:
        return f"Unreadable({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class FileContent:
    """The bytes of a file, when they were last changed (Unix seconds) and the uid that the file belongs to."""

    __slots__ = ("data", "modified", "owner")

    def __init__(self, data: bytes, modified: float, owner: int | None = None) -> None:
        self.data = data
        self.modified = modified
        self.owner = owner


class JsonObject:
    """A JSON object. A key that holds something unexpected reads as absent and adds a line to `problems`.

    Args:
        values: as `json` decodes them.
        modified: when the file was last changed, Unix seconds.
        problems: the list that lines are added to; a new one if None.
        owner: uid that the file belongs to, None if unknown.
    """

    __slots__ = ("modified", "owner", "problems", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        modified: float = 0.0,
        problems: list[str] | None = None,
        owner: int | None = None,
    ) -> None:
        self.values = values
        self.modified = modified
        self.owner = owner
        self.problems: list[str] = [] if problems is None else problems

    def text(self, key: str) -> str | None:
        """Return a string, or a whole number as text."""
        value = self.values.get(key)
        if type(value) is str and value.isascii():
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is None or isinstance(value, str):
            # A lone surrogate is valid JSON and cannot be encoded again.
            return value and value.encode("utf-8", "replace").decode()
        self._unexpected(key, "a string")
        return None

    def number(self, key: str) -> float | None:
        """Return a finite number."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _TOO_LARGE:
            return float(value)
        self._unexpected(key, "a finite number")
        return None

    def integer(self, key: str) -> int | None:
        """Return a whole number from 0 to 2^63 - 1."""
        whole = self.values.get(key)
        if type(whole) is int and 0 <= whole < _TOO_LARGE_INTEGER:
            return whole
        value = self.number(key)
        if value is None:
            return None
        if 0 <= value < _TOO_LARGE_INTEGER and value == int(value):
            return int(self.values[key])
        expected = "a whole number, 0 or more" if value < _TOO_LARGE_INTEGER else "a whole number below 2^63"
        self._unexpected(key, expected)
        return None

    def time(self, key: str) -> float | None:
        """Return Unix seconds, from ISO 8601 text or from a number of seconds."""
        value = self.values.get(key)
        seconds = from_iso(value) if isinstance(value, str) else self.number(key)
        if seconds is None and isinstance(value, str):
            self._unexpected(key, "an ISO 8601 time")
        if seconds is not None and not _FIRST_SECOND <= seconds < _LAST_SECOND:
            self._unexpected(key, "a time of the years 1 to 9999")
            return None
        return seconds

    def child(self, key: str) -> JsonObject | None:
        """Return an object inside; its problems are added to those of this one."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return JsonObject(value, self.modified, self.problems, self.owner)
        self._unexpected(key, "an object")
        return None

    def children(self, key: str) -> Iterator[JsonObject]:
        """Yield the objects of a list inside; nothing if there is no such list."""
        for values in self.objects(key):
            yield JsonObject(values, self.modified, self.problems, self.owner)

    def objects(self, key: str) -> list[dict[str, Any]]:
        """Return the objects of a list inside as they are decoded; none if there is no such list."""
        value = self.values.get(key)
        if isinstance(value, list):
            return [item for item in value if isinstance(item, dict)]
        if value is not None:
            self._unexpected(key, "a list")
        return []

    def _unexpected(self, key: str, expected: str) -> None:
        self.problems.append(f"{key}: {str(self.values.get(key))[:60]!r} is not {expected}")


def read_open(descriptor: int, size: int, limit: int) -> bytes:
    """Return the content of an open file from where it is, at most `limit` bytes; `size` is what its status states.

    A file object allocates as many bytes as it is to read, however short the file is.

    Raises:
        OSError: it cannot be read.
    """
    data = os.read(descriptor, min(size + 1, limit))
    if len(data) in (0, size, limit):
        return data
    parts = [data]
    limit -= len(data)
    while limit > 0 and (data := os.read(descriptor, min(limit, 65536))):
        parts.append(data)
        limit -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_file(
    path: str | os.PathLike[str], limit: int = MAX_BYTES, folder: int | None = None
) -> FileContent | Unreadable | None:
    """Return the content of a plain file of at most `limit` bytes; None if there is no file.

    Users own records and services read them: a symbolic link is not followed, a pipe is not waited for. Of an open
    `folder` the file is read that has the last part of the path, which is then for messages.
    """
    try:
        name = path if folder is None else os.path.basename(path)  # noqa: PTH119  # a Path takes longer than the call
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        return Unreadable(path, "is a symbolic link, not a file" if is_link else error.strerror or str(error))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Unreadable(path, "is not a plain file")
        data = read_open(descriptor, status.st_size, limit + 1)
    except OSError as error:
        return Unreadable(path, error.strerror or str(error))
    finally:
        os.close(descriptor)
    if len(data) > limit:
        return Unreadable(path, f"is larger than {limit} bytes")
    return FileContent(data, status.st_mtime, status.st_uid)


def parse_json(content: FileContent, path: str | os.PathLike[str]) -> JsonObject | Unreadable:
    """Return the JSON object that `content` holds."""
    try:
        values = _loads(content.data)
    except (ValueError, RecursionError) as error:
        return Unreadable(path, f"is not JSON: {error}" if content.data else "is empty")
    if not isinstance(values, dict):
        return Unreadable(path, f"holds a JSON {type(values).__name__}, not an object")
    return JsonObject(values, content.modified, owner=content.owner)


def _loads(data: bytes) -> Any:
    """Return what `json.loads` does, sooner for an object as the library writes it."""
    if data[:2] == b'{"':  # which is UTF-8
        text = data.decode("utf-8", "surrogatepass")
        try:
            values, end = _decode(text)
        except ValueError:
            pass  # `json.loads` has the message
        else:
            if text[end:] in ("", "\n"):
                return values
    return json.loads(data)


def read_json(
    path: str | os.PathLike[str], limit: int = MAX_BYTES, folder: int | None = None
) -> JsonObject | Unreadable | None:
    """Return the JSON object that a file holds; None if there is no file. Arguments as those of `read_file`."""
    content = read_file(path, limit, folder)
    return parse_json(content, path) if isinstance(content, FileContent) else content
