"""Where the runs folder is."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden.record.folder import runs_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# A link may lead to a folder later.
_NOT_YET = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def runs_folder(flags: Mapping[str, Any]) -> Path:
    """Return the runs folder that the flags, else the environment, name."""
    path: Path | None = flags["collector.runs.path"]
    return path or runs_dir()


def is_unprotected(path: Path) -> bool:
    """Return whether everybody may replace and remove what others have in the runs folder."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


UNPROTECTED = "any user may replace and remove the records of others in it; `chmod +t` keeps them from that"


def runs_folder_exists(path: Path) -> bool:
    """Return whether the runs folder exists yet; raise `UsageError` if the path is no folder or cannot be read."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if error.errno in _NOT_YET:
            return False
        is_folder = False  # below a folder that this user may not enter
    if not is_folder or not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"--collector.runs.path {path}: expected a folder that this user can read")
    return True
