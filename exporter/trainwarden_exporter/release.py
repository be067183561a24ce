"""Releases every device so that it can be reset, and opens them again: on SIGUSR1, or while a file exists."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainwarden_exporter.sampling.collection import Collection

log = logging.getLogger(__name__)


class Release:
    """Releases the devices of a collection on request. `tick` is called about once a second while it is needed.

    Args:
        collection: the collectors whose devices are released.
        seconds: after which devices released by a signal are opened again.
        file: while it exists, they are released.
        monotonic: the clock.
    """

    def __init__(
        self,
        collection: Collection,
        seconds: float,
        file: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.file = file
        self._collection = collection
        self._monotonic = monotonic
        self._until: float | None = None
        self._requested = False
        self._holding: list[str] = []

    @property
    def requested(self) -> bool:
        """Whether the devices are, or are about to be, released."""
        return self._requested

    @property
    def needs_ticks(self) -> bool:
        """Whether something else than a signal may require the devices to be released or opened."""
        return self.file is not None or self._requested

    def toggle(self) -> None:
        """Act on SIGUSR1: release for a time; on a second one within it, open the devices again."""
        self._until = None if self._until is not None else self._monotonic() + self.seconds
        self.tick()

    def tick(self) -> None:
        """Release or open the devices if the time, the signal or the file requires it."""
        if self._until is not None and self._monotonic() >= self._until:
            self._until = None
        by_file = self.file is not None and os.path.lexists(self.file)
        wanted = by_file or self._until is not None
        if wanted and not self._requested:
            self._requested = True
            log.info(
                "releasing all devices %s", f"while {self.file} exists" if by_file else f"for {self.seconds:.0f} s"
            )
            self._release(first=True)
        elif wanted and self._holding:
            self._release(first=False)
        elif not wanted and self._requested:
            self._requested, self._holding = False, []
            self._collection.resume()
            log.info("the devices are taken again")

    def _release(self, *, first: bool) -> None:
        before, self._holding = self._holding, self._collection.release()
        if not self._holding:
            log.info("all devices are released")
        elif first or self._holding != before:
            log.warning("not released: %s, which hangs", ", ".join(self._holding))
