"""A prefix in S3 that holds checkpoints: it is listed once, then ranges of objects are read."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Literal

from trainwarden.checkpoint import names
from trainwarden.checkpoint.tree import MAX_FILES, MAX_MANIFEST_BYTES, Listing, NotThere, TreeEntry
from trainwarden.clients.s3 import S3Bucket, S3Error
from trainwarden.clients.s3_location import S3Location
from trainwarden.deadline import Deadline, DeadlineExceeded


class S3Tree:
    """The objects below `location`, or the one object of that name. They are listed once, at the first call.

    Args:
        location: of a prefix or an object.
        deadline: for the listing.
    """

    # Each is a request.
    reads_are_cheap = False

    def __init__(self, location: S3Location, deadline: Deadline) -> None:
        self._location = location
        self._deadline = deadline
        self._bucket = S3Bucket(S3Location(location.bucket, region=location.region))
        self._listed: tuple[dict[str, int], str] | None = None

    def address(self, path: str) -> str:
        """Return the URL."""
        return f"s3://{self._location.bucket}/{self._key(path)}".rstrip("/")

    def kind(self, path: str) -> Literal["file", "folder", "other"]:
        """Return what the path is; raises NotThere or OSError."""
        objects, error = self._objects()
        if path in objects:
            return "file"
        if any(name.startswith(path and f"{path}/") for name in objects if name):
            return "folder"
        if error:
            raise OSError(error)
        raise NotThere("there is no such object or prefix")

    def size(self, path: str) -> int:
        """Return the bytes of the object; raises OSError."""
        try:
            return self._objects()[0][path]
        except KeyError:
            raise NotThere("there is no such object") from None

    def entries(self, path: str, deadline: Deadline) -> list[TreeEntry]:
        """List the prefix, one level deep; raises OSError."""
        objects, error = self._objects()
        if error:
            raise OSError(error)
        found: dict[str, TreeEntry] = {}
        for name, size in objects.items():
            deadline.check()
            if name and name.startswith(path and f"{path}/"):
                first, slash, _ = name[len(path) + 1 if path else 0 :].partition("/")
                found[first] = TreeEntry(first, "folder") if slash else TreeEntry(first, "file", size)
        return list(found.values())

    def walk(self, path: str, deadline: Deadline) -> Listing:  # noqa: ARG002  # the listing is complete by now
        """List all objects below the prefix. Never raises."""
        try:
            objects, problem = self._objects()
        except OSError as error:
            return Listing(errors=[str(error)])
        start = path and f"{path}/"
        below = {name[len(start) :]: size for name, size in objects.items() if name and name.startswith(start)}
        sized = {name: size for name, size in below.items() if not names.is_no_content(name.rpartition("/")[2])}
        files = {name: size for name, size in sized.items() if not names.is_in_hidden_folder(name)}
        # Objects are uploaded in any order, so their times prove nothing.
        return Listing(
            files,
            ignored=sorted(below.keys() - files.keys()),
            errors=[problem] if problem else [],
            plain_bytes=sum(sized.values()),
        )

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes of an object from `start` on; raises OSError."""
        try:
            return self._bucket.read(self._key(path), start, length)
        except S3Error as error:
            raise OSError(str(error)) from error

    def manifest(self, path: str, *, is_file: bool) -> bytes | None:
        """Return the manifest of digests of the checkpoint; None if there is none; raises OSError."""
        folder, slash, name = path.rpartition("/")
        place = f"{folder + slash if is_file else f'{path}/'.lstrip('/')}{names.manifest(name, is_file=is_file)}"
        size = self._objects()[0].get(place)
        if size is None or (is_file and not path):
            return None
        if size > MAX_MANIFEST_BYTES:
            raise OSError(f"its manifest of digests has {size} bytes, too many to be read")
        return self.read(place, 0, size)

    def keep_open(self, path: str) -> AbstractContextManager[None]:  # noqa: ARG002  # there is nothing to keep
        """Return a context that changes nothing."""
        return nullcontext()

    def hole(self, path: str, start: int) -> None:
        """Return None: an object has no holes."""

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._location.prefix, path) if part)

    def _objects(self) -> tuple[dict[str, int], str]:
        """Return the sizes by name, and why the listing may be incomplete; empty if it is complete."""
        if self._listed is None:
            self._listed = self._list()
        return self._listed

    def _list(self) -> tuple[dict[str, int], str]:
        prefix = self._location.prefix
        below = prefix and f"{prefix}/"
        objects: dict[str, int] = {}
        try:
            # In name order, an object named like the prefix itself is listed first.
            if prefix and (first := next(self._bucket.entries(prefix), None)) and first.name == prefix:
                objects[""] = first.size
            for entry in islice(self._bucket.entries(below), MAX_FILES + 1):
                self._deadline.check()
                if not entry.name.endswith("/"):
                    objects[entry.name[len(below) :]] = entry.size
        except S3Error as error:
            raise OSError(str(error)) from error
        except DeadlineExceeded as error:
            return objects, str(error)
        return objects, f"it holds more than {MAX_FILES} objects" if len(objects) >= MAX_FILES else ""
