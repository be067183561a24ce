"""Open a log whose path comes from a run record: only a plain file inside the folders where logs may be."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trainwarden.beneath import READ, is_of, open_inside


class Refused(Exception):
    """A path that is not read; `reason` is one word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class OwnedRoots(tuple[str, ...]):
    """Folders in which only the logs of one user are read; `owner` is the uid."""

    owner: int

    def __new__(cls, folders: Sequence[str], owner: int) -> "OwnedRoots":
        """Return these folders with the user."""
        roots = super().__new__(cls, folders)
        roots.owner = owner
        return roots


def open_log(path: str, roots: Sequence[str]) -> int:
    """Open a log for reading and return its descriptor. Links are followed as far as they stay inside `roots`.

    Raises:
        Refused: it is no plain file, lies outside, or belongs to another user than that of `OwnedRoots`.
        OSError: it cannot be opened.
    """
    if isinstance(roots, OwnedRoots):
        return _open_of_owner(path, roots)
    # Checked before: opening alone moves some devices.
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise Refused("no_plain_file", f"{path}: is no plain file")
    descriptor = os.open(path, READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("no_plain_file", f"{path}: is no plain file")
        place = _place(descriptor, path)
        if not is_inside(place, roots):
            raise Refused("outside", f"{path}: leads to {place}, outside {', '.join(roots)}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_of_owner(path: str, roots: OwnedRoots) -> int:
    # Whatever is outside is refused alike, whether it is there or not: its existence is not for everybody to learn.
    place = os.path.realpath(path)
    root = _root_of(place, roots)
    if root is None:
        raise Refused("outside", f"{path}: leads outside {', '.join(roots)}")
    try:
        descriptor = open_inside(root, place)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):  # replaced by a link since
            raise Refused("outside", f"{path}: leads outside {', '.join(roots)}") from error
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and is_of(status, roots.owner):
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Refused("no_plain_file", f"{path}: is no plain file")
    raise Refused("owner", f"{path}: belongs to another user (uid {status.st_uid}) than the run (uid {roots.owner})")


def is_inside(place: str, roots: Sequence[str]) -> bool:
    """Return whether a real path is in one of the folders, which may be links."""
    return _root_of(place, roots) is not None


def _root_of(place: str, roots: Sequence[str]) -> str | None:
    """Return the real path of the folder that a real path is in; None if it is in none of them."""
    return next((real for real in map(os.path.realpath, roots) if os.path.commonpath((place, real)) == real), None)


def _place(descriptor: int, path: str) -> str:
    """Return the real path of the open file, which may have been replaced at its path since."""
    try:
        place = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        place = ""
    if place.startswith("/") and not place.endswith(" (deleted)"):
        return place
    return os.path.realpath(path)
