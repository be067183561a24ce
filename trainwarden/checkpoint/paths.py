"""Paths of checkpoints as users write them: a file, a folder or `s3://bucket/prefix`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.checkpoint.names import is_no_content
from trainwarden.checkpoint.tree import Tree
from trainwarden.deadline import Deadline

_S3_SECONDS = 60.0


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether the path is in S3."""
    return os.fsdecode(path).startswith("s3://")


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path; an S3 URL unchanged."""
    text = os.fsdecode(path)
    return text if is_remote(text) else os.path.abspath(text)  # noqa: PTH100  # names need not be UTF-8


def open_tree(path: str | os.PathLike[str], deadline: Deadline) -> Tree:
    """Return the tree of a path; nothing is read yet.

    Raises:
        ValueError: the path is invalid.
        OSError: boto3 is needed and not installed.
    """
    text = os.fsdecode(path)
    if not is_remote(text):
        return FolderTree(text.rstrip("/") or text)
    # boto3 is an extra, and loaded for S3 alone.
    from trainwarden.checkpoint.s3_tree import S3Tree  # noqa: PLC0415
    from trainwarden.clients.s3_boto3 import MissingBoto3, load_boto3  # noqa: PLC0415
    from trainwarden.clients.s3_location import InvalidLocation, parse_s3_url  # noqa: PLC0415

    try:
        load_boto3()
    except MissingBoto3 as error:
        raise OSError(str(error)) from error
    try:
        location = parse_s3_url(text, os.environ.get("MONITORING_REGION") or None, source="checkpoints")
    except InvalidLocation as error:
        # The caller adds the path to its message.
        raise ValueError(str(error).rpartition("': ")[2]) from None
    return S3Tree(location, deadline)


def size_of(path: str | os.PathLike[str]) -> int | None:
    """Return the bytes of a file, or of all plain files below a folder or S3 prefix, without links; None if not found.

    It waits for the file system without a timeout, and for S3 up to 60 s.
    """
    try:
        if is_remote(path):
            return _in_s3(path)
        path = Path(path)
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        return sum(_sizes_below(path))
    except (OSError, ValueError):
        return None


def _in_s3(path: str | os.PathLike[str]) -> int | None:
    deadline = Deadline(_S3_SECONDS)
    tree = open_tree(path, deadline)
    if tree.kind("") == "file":
        return tree.size("")
    listing = tree.walk("", deadline)
    return None if listing.errors else listing.plain_bytes


def _sizes_below(folder: Path) -> Iterator[int]:
    def fail(error: OSError) -> None:
        raise error

    for base, _, names in os.walk(folder, onerror=fail):
        for name in names:
            if is_no_content(name):
                continue
            status = os.lstat(os.path.join(base, name))  # noqa: PTH118  # thousands of shards need no Path each
            if stat.S_ISREG(status.st_mode):
                yield status.st_size
