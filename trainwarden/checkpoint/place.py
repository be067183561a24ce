"""From what users write to where it lies."""

import os

from trainwarden.checkpoint.folder import FolderTree
from trainwarden.checkpoint.tree import Tree
from trainwarden.deadline import Deadline


def is_remote(path: "str | os.PathLike[str]") -> bool:
    """Whether it lies in S3."""
    return os.fsdecode(path).startswith("s3://")


def absolute(path: "str | os.PathLike[str]") -> str:
    """The same place, however the working folder changes."""
    text = os.fsdecode(path)
    return text if is_remote(text) else os.path.abspath(text)  # noqa: PTH100  # names need not be UTF-8


def place(path: "str | os.PathLike[str]", deadline: Deadline) -> Tree:
    """The folder, or the place in S3, that `path` names; nothing is looked at yet.

    Raises:
        ValueError: it names no place.
        OSError: boto3 is wanted and not there.
    """
    text = os.fsdecode(path)
    if not is_remote(text):
        return FolderTree(text.rstrip("/") or text)
    # S3 is an extra; a training with a folder alone never loads it.
    from trainwarden.checkpoint.prefix import PrefixTree  # noqa: PLC0415
    from trainwarden.clients.s3 import InvalidLocation, MissingBoto3, load_boto3, parse_s3_url  # noqa: PLC0415

    try:
        load_boto3()
    except MissingBoto3 as error:
        raise OSError(str(error)) from error
    try:
        location = parse_s3_url(text, os.environ.get("MONITORING_REGION") or None, source="checkpoints")
    except InvalidLocation as error:
        # Whoever asked knows which text it is, and says so.
        raise ValueError(str(error).rpartition("': ")[2]) from None
    return PrefixTree(location, deadline)
