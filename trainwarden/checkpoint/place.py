"""From what users write to where it lies."""

import os

from trainwarden.checkpoint.folder import FolderTree
from trainwarden.checkpoint.patience import Deadline
from trainwarden.checkpoint.tree import Tree


def place(path: "str | os.PathLike[str]", deadline: Deadline) -> Tree:
    """The folder, or the place in S3, that `path` names; nothing is looked at yet.

    Raises:
        ValueError: it names no place.
        OSError: boto3 is wanted and not there.
    """
    text = os.fsdecode(path)
    if not text.startswith("s3://"):
        return FolderTree(text.rstrip("/") or text)
    # S3 is an extra; a training with a folder alone never loads it.
    from trainwarden.checkpoint.prefix import PrefixTree  # noqa: PLC0415
    from trainwarden.s3.bucket import MissingBoto3, load_boto3  # noqa: PLC0415
    from trainwarden.s3.location import parse  # noqa: PLC0415

    try:
        load_boto3()
    except MissingBoto3 as error:
        raise OSError(str(error)) from error
    return PrefixTree(parse(text, os.environ.get("MONITORING_REGION") or None, source="checkpoints"), deadline)
