"""Open a log whose path comes from a run record: only a plain file inside the folders where logs may be."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trainwarden.beneath import is_of, open_checked, open_inside


class Refused(Exception):
    """A path that is not read; `reason` is one word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class OwnedRoots(tuple[str, ...]):
    """Folders in which only the logs of one user are read.

    Attributes:
        owner: uid of the user.
        alone: of nobody else; else also what root and this process let everybody read, see `is_of`.
    """

    owner: int
    alone: bool

    def __new__(cls, folders: Sequence[str], owner: int, *, alone: bool = False) -> "OwnedRoots":
        """Return these folders with the user."""
        roots = super().__new__(cls, folders)
        roots.owner = owner
        roots.alone = alone
        return roots


def open_log(path: str, roots: Sequence[str]) -> int:
    """Open a log for reading and return its descriptor. Links are followed as far as they stay inside `roots`.

    What is refused is not opened but with `O_PATH`.

    Raises:
        Refused: it is no plain file, lies outside, or belongs to another user than that of `OwnedRoots`.
        OSError: it cannot be opened.
    """
    if isinstance(roots, OwnedRoots):
        return _open_of_owner(path, roots)
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def check(status: os.stat_result) -> None:
        _check_plain(status, path)
        real = _place(place, path)
        if not is_inside(real, roots):
            raise Refused("outside", f"{path}: leads to {real}, outside {', '.join(roots)}")

    return open_checked(place, check)


def _open_of_owner(path: str, roots: OwnedRoots) -> int:
    # Whatever is outside is refused alike, whether it is there or not: its existence is not for everybody to learn.
    real = os.path.realpath(path)
    root = _root_of(real, roots)
    if root is None:
        raise Refused("outside", f"{path}: leads outside {', '.join(roots)}")

    def check(status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):  # put there since
            raise Refused("outside", f"{path}: leads outside {', '.join(roots)}")
        _check_plain(status, path)
        if status.st_uid != roots.owner and (roots.alone or not is_of(status, roots.owner)):
            raise Refused(
                "owner", f"{path}: belongs to another user (uid {status.st_uid}) than the run (uid {roots.owner})"
            )

    try:
        place = open_inside(root, real, os.O_PATH)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):  # replaced by a link since
            raise Refused("outside", f"{path}: leads outside {', '.join(roots)}") from error
        raise
    return open_checked(place, check)


def _check_plain(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("no_plain_file", f"{path}: is no plain file")


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
