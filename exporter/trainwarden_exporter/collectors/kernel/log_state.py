"""What was counted in the kernel's log, and up to which line, kept over a restart of the exporter."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

# An event is stored at once; lines that are none would be read again, and only then count as lost.
STORE_SECONDS = 60.0


class Positioned(Protocol):
    """A log that can be read on from where another process ended."""

    @property
    def position(self) -> Mapping[str, Any]:
        """Up to where it was read."""

    def restore(self, position: Mapping[str, Any]) -> bool:
        """Go on behind a position of the same boot; return False if it is of another source."""


class LogState:
    """The state file of what counts events in a log.

    Args:
        file: None: nothing is kept.
        boot_id: of the kernel; empty if unknown, and nothing is kept then.
        source: the log.
    """

    def __init__(self, file: StateFile | None, boot_id: str, source: Positioned) -> None:
        self._file = file if file is not None and boot_id else StateFile(None)
        self._boot_id = boot_id
        self._source = source
        self._stored_at: float | None = None

    def restore(self, take: Callable[[Mapping[str, Any], bool], None]) -> bool:
        """Take over what was counted, and go on behind the last line that was.

        Args:
            take: called with what was stored, and whether it is of this boot; raises a `LookupError`, `TypeError` or
                `ValueError`, and takes nothing, if it is damaged.

        Returns:
            Whether every line that is read from now on is new; those of another boot are.
        """
        stored = self._file.read()
        if stored is None:
            return False
        try:
            same_boot = stored["boot_id"] == self._boot_id
            take(stored, same_boot)
            return not same_boot or self._source.restore(stored["position"])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            log.warning("%s is not used: %r", self._file.path, error)
            return False

    def store(self, counted: Callable[[], Mapping[str, Any]], *, at_once: bool) -> None:
        """Store what was counted, `at_once` or if that was not done for a minute."""
        now = time.monotonic()
        if at_once or self._stored_at is None or now - self._stored_at >= STORE_SECONDS:
            self._stored_at = now
            self._file.write({"boot_id": self._boot_id, "position": self._source.position, **counted()})
