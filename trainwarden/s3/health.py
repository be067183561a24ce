"""How the copy in S3 fares: what `metadata.json` says of it, what the log says, and how long to pause."""

import logging
import random
import time
from typing import Any

from trainwarden.record.clock import to_iso
from trainwarden.s3.location import Location

_LONGEST_PAUSE_SECONDS = 60.0

logger = logging.getLogger("trainwarden")


class Health:
    """Written by the thread that asks S3, and before that by the one that waits for it; read by any."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._last_success: float | None = None
        self._last_error: str | None = None
        self._errors = 0
        self._in_a_row = 0
        # No request before this time of the monotonic clock.
        self.not_before = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the last request failed."""
        return self._in_a_row > 0

    def succeeded(self) -> None:
        """A request did what it should."""
        if self._in_a_row:
            logger.warning("the run record in S3, %s, can be written again", self._location)
        self._last_success, self._in_a_row, self.not_before = time.time(), 0, 0.0

    def failed(self, code: str, text: str) -> None:
        """One did not: `code` goes into the record, `text` into the log; the next pause is longer, up to a minute."""
        is_known = self._in_a_row and code == self._last_error
        level = logging.DEBUG if is_known else logging.WARNING
        self._errors += 1
        self._last_error = code
        logger.log(level, "the run record in S3 could not be read or written, the run goes on: %s", text)
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(self._in_a_row, 10))
        # A thousand runs that lost S3 at once must not come back at once.
        self.not_before = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311
        self._in_a_row += 1

    def state(self, waiting: int) -> dict[str, Any]:
        """What `metadata.json` holds under `s3`."""
        success = self._last_success
        return {
            "url": str(self._location),
            "last_success": None if success is None else to_iso(success),
            "errors": self._errors,
            "last_error": self._last_error,
            "waiting": waiting,
        }
