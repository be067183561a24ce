"""Names of users by their number."""

from __future__ import annotations

import pwd
from pathlib import Path

from trainwarden_exporter.sampling.calls import calling

MAX_NAMES = 10_000


class UserNames:
    """The names of the node's users: of its passwd file, else of what this system asks (LDAP, sssd), else numbers.

    Args:
        rootfs: where the node's root is mounted; in a container the container's own users are others.
    """

    def __init__(self, rootfs: Path) -> None:
        self._passwd = rootfs / "etc/passwd"
        self._asks_system = rootfs == Path("/")
        self._known: dict[int, str] = {}

    def __call__(self, uid: int) -> str:
        """Return the name of a user; the number as text if there is no name."""
        if uid not in self._known:
            if len(self._known) >= MAX_NAMES:
                self._known.clear()
            self._known[uid] = self._look_up(uid)
        return self._known[uid]

    def _look_up(self, uid: int) -> str:
        if self._asks_system:
            try:
                with calling("getpwuid"):
                    return pwd.getpwuid(uid).pw_name
            except (KeyError, OverflowError):
                return str(uid)
        try:
            lines = self._passwd.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return str(uid)
        for fields in (line.split(":") for line in lines):
            if len(fields) > 2 and fields[2] == str(uid):
                return fields[0]
        return str(uid)
