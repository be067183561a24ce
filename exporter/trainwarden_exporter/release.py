"""Lets go of every device so that it can be reset, and takes them again: on SIGUSR1, or while a file exists."""

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
    """What holds the devices of a collection back. `tick` is called about once a second.

    Args:
        collection: whose devices they are.
        seconds: after which devices that a signal had released are taken again.
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
        self._asked = False
        self._holding: list[str] = []

    @property
    def asked(self) -> bool:
        """The devices are, or are about to be, released."""
        return self._asked

    def toggle(self) -> None:
        """Act on SIGUSR1: release for a time; on a second one within it, take the devices again."""
        self._until = None if self._until is not None else self._monotonic() + self.seconds
        self.tick()

    def tick(self) -> None:
        """Do what is due."""
        if self._until is not None and self._monotonic() >= self._until:
            self._until = None
        by_file = self.file is not None and os.path.lexists(self.file)
        wanted = by_file or self._until is not None
        if wanted and not self._asked:
            self._asked = True
            log.info(
                "releasing all devices %s", f"while {self.file} exists" if by_file else f"for {self.seconds:.0f} s"
            )
            self._let_go(first=True)
        elif wanted and self._holding:
            self._let_go(first=False)
        elif not wanted and self._asked:
            self._asked, self._holding = False, []
            self._collection.resume()
            log.info("the devices are taken again")

    def _let_go(self, *, first: bool) -> None:
        before, self._holding = self._holding, self._collection.release()
        if not self._holding:
            log.info("all devices are released")
        elif first or self._holding != before:
            log.warning("not released: %s, which hangs", ", ".join(self._holding))
