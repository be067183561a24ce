"""Open a log whose path comes from a run record: only a plain file inside the folders where logs may be."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

# Without O_NONBLOCK the call would wait for a pipe; a terminal must not become the controlling one.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Refused(Exception):
    """A path that is not read; `reason` is one word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def open_log(path: str, roots: Sequence[str]) -> int:
    """Open a log for reading and return its descriptor. Links are followed as far as they stay inside `roots`.

    Raises:
        Refused: it is no plain file, or lies outside.
        OSError: it cannot be opened.
    """
    # Checked before: opening alone moves some devices.
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise Refused("no_plain_file", f"{path}: is no plain file")
    descriptor = os.open(path, _READ)
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


def is_inside(place: str, roots: Sequence[str]) -> bool:
    """Return whether a real path is in one of the folders, which may be links."""
    return any(os.path.commonpath((place, os.path.realpath(root))) == os.path.realpath(root) for root in roots)


def _place(descriptor: int, path: str) -> str:
    """Return the real path of the open file, which may have been replaced at its path since."""
    try:
        place = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        place = ""
    if place.startswith("/") and not place.endswith(" (deleted)"):
        return place
    return os.path.realpath(path)
