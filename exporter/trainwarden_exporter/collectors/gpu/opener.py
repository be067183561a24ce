"""Open a driver's library in a thread of its own: the call may never return."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.sampling.calls import calling, current, enter, leave

if TYPE_CHECKING:
    from collections.abc import Callable

FOLLOW_SECONDS = 0.5


class Opener:
    """One attempt at a time. `begin` is for one thread, the others are for any.

    Args:
        name: of the thread.
        call: of the driver; the attempt counts as being in it unless it names another by `calling`.
    """

    def __init__(self, name: str, call: str) -> None:
        self._name = name
        self._call = call
        self._thread: threading.Thread | None = None
        self._begun = 0.0

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def call(self) -> str:
        """The call that the attempt is in."""
        return current(self._thread.ident if self._thread is not None else None) or self._call

    def begin(self, attempt: Callable[[], None]) -> None:
        """Begin an attempt unless one is under way; return at once."""
        if not self.busy:
            self._begun = time.monotonic()
            thread = threading.Thread(target=self._run, args=(attempt,), name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the attempt ends, at most until `seconds` after it began; return False if it goes on."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(None if seconds is None else max(self._begun + seconds - time.monotonic(), 0.0))
        return not thread.is_alive()

    def follow(self) -> None:
        """Wait until the attempt ends; meanwhile this thread counts as being in the same call."""
        thread = self._thread
        while thread is not None and thread.is_alive():
            enter(self.call)
            thread.join(FOLLOW_SECONDS)

    def _run(self, attempt: Callable[[], None]) -> None:
        try:
            with calling(self._call):
                attempt()
        finally:
            leave()
