"""A folder that holds checkpoints; on a shared file system it may hold pipes, link circles and unreadable files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from trainwarden.checkpoint import names
from trainwarden.checkpoint.tree import MAX_FILES, MAX_MANIFEST_BYTES, Listing, NotThere, TreeEntry
from trainwarden.deadline import Deadline, DeadlineExceeded

_MAX_ERRORS = 20


class FolderTree:
    """The files below a folder, or a single file. Links are followed, circles end, only plain files are opened."""

    reads_are_cheap = True

    def __init__(self, root: str) -> None:
        self._root = root
        # The path to keep open, and its descriptor once it is open.
        self._kept_path: str | None = None
        self._kept: int | None = None

    def address(self, path: str) -> str:
        """Return the full path."""
        return os.path.join(self._root, path) if path else self._root  # noqa: PTH118  # names need not be UTF-8

    def kind(self, path: str) -> Literal["file", "folder", "other"]:
        """Return what the path is; raises NotThere or OSError."""
        try:
            return _kind(os.stat(self.address(path)).st_mode)  # noqa: PTH116  # see address
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotThere("it does not exist") from error
        except ValueError as error:
            raise NotThere(f"it is no path: {error}") from error

    def size(self, path: str) -> int:
        """Return the bytes of the file; raises OSError."""
        return os.stat(self.address(path)).st_size  # noqa: PTH116  # see address

    def entries(self, path: str, deadline: Deadline) -> list[TreeEntry]:
        """List the folder; a name that vanishes or is a broken link is of kind `other`."""
        found: list[TreeEntry] = []
        with os.scandir(self.address(path)) as entries:
            for entry in entries:
                if len(found) >= MAX_FILES:
                    raise OSError(f"it holds more than {MAX_FILES} names")
                deadline.check()
                try:
                    status = entry.stat()
                    kind, size = _kind(status.st_mode), status.st_size
                except OSError:
                    kind, size = "other", 0
                found.append(TreeEntry(entry.name, kind, size, _target(entry)))
        return found

    def walk(self, path: str, deadline: Deadline) -> Listing:
        """List all files below the folder. Never raises."""
        listing = Listing()
        try:
            self._walk(path, deadline, listing)
        except DeadlineExceeded as error:
            listing.errors.append(str(error))
        return listing

    def _walk(self, path: str, deadline: Deadline, listing: Listing) -> None:
        waiting = [("", False)]
        seen: set[tuple[int, int]] = set()
        while waiting:
            below, by_link = waiting.pop()
            try:
                folder = os.path.join(self.address(path), below)  # noqa: PTH118  # see address
                status = os.stat(folder)  # noqa: PTH116  # see address
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if len(listing.files) + len(waiting) >= MAX_FILES:
                            listing.errors.append(f"it holds more than {MAX_FILES} files")
                            return
                        deadline.check()
                        if _add(entry, below, by_link, listing):
                            waiting.append((f"{below}{entry.name}/", by_link or entry.is_symlink()))
            except (OSError, ValueError) as error:
                _add_error(listing, f"{below or 'its folder'} cannot be read: {_reason(error)}")

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes of a plain file from `start` on; raises OSError."""
        with self._opened(path) as descriptor:
            parts = []
            while length > 0 and (part := os.pread(descriptor, min(length, 2**24), start)):
                parts.append(part)
                start, length = start + len(part), length - len(part)
            return b"".join(parts)

    def hole(self, path: str, start: int) -> tuple[int, int] | None:
        """Return the first hole from `start` on, where the file system reports them; raises OSError."""
        with self._opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            try:
                begin = os.lseek(descriptor, start, os.SEEK_HOLE)
                if begin >= size:
                    return None
                return begin, os.lseek(descriptor, begin, os.SEEK_DATA)
            except OSError as error:
                # ENXIO: no data follow; other errors: it does not report holes.
                return (begin, size) if error.errno == errno.ENXIO and start < size else None

    def manifest(self, path: str, *, is_file: bool) -> bytes | None:
        """Return the manifest of digests of the checkpoint; None if there is none; raises OSError."""
        address = self.address(path)
        folder, name = os.path.split(address)
        place = f"{folder if is_file else address}/{names.manifest(name, is_file=is_file)}"
        try:
            size = os.stat(place).st_size  # noqa: PTH116  # see address
        except (FileNotFoundError, NotADirectoryError):
            return None
        if size > MAX_MANIFEST_BYTES:
            raise OSError(f"its manifest of digests has {size} bytes, too many to be read")
        return FolderTree(place).read("", 0, size)

    @contextmanager
    def keep_open(self, path: str) -> Iterator[None]:
        """Return a context in which all reads of the file open it once, at the first."""
        self._kept_path = path
        try:
            yield
        finally:
            self._kept_path = None
            if self._kept is not None:
                os.close(self._kept)
                self._kept = None

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        if path == self._kept_path:
            if self._kept is None:
                self._kept = _open(self.address(path))
            yield self._kept
            return
        descriptor = _open(self.address(path))
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _open(path: str) -> int:
    # Without O_NONBLOCK opening a pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no plain file")
        # A few bytes here and there: read ahead, the kernel would fetch a hundred times as much.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _add(entry: os.DirEntry[str], below: str, by_link: bool, listing: Listing) -> bool:
    """Add a name to the listing, and return whether it is a folder to walk."""
    name = below + entry.name
    try:
        status = entry.stat()
    except OSError as error:
        if entry.is_symlink():
            listing.special.append(name)
        else:
            _add_error(listing, f"{name} cannot be read: {_reason(error)}")
        return False
    if stat.S_ISDIR(status.st_mode):
        return True
    if not stat.S_ISREG(status.st_mode):
        listing.special.append(name)
        return False
    if names.is_no_content(entry.name):
        listing.ignored.append(name)
        return False
    if names.is_in_hidden_folder(name):
        listing.ignored.append(name)
    else:
        listing.files[name] = status.st_size
        listing.modified[name] = status.st_mtime
    # All of them are in the sizes that records hold.
    if not by_link and not entry.is_symlink():
        listing.plain_bytes += status.st_size
    return False


def _add_error(listing: Listing, line: str) -> None:
    if len(listing.errors) < _MAX_ERRORS:
        listing.errors.append(line)


def _kind(mode: int) -> Literal["file", "folder", "other"]:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _target(entry: os.DirEntry[str]) -> str | None:
    try:
        return os.readlink(entry.path) if entry.is_symlink() else None  # noqa: PTH115  # see address
    except OSError:
        return None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
