"""The interface of a second copy of a run's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class Copy(Protocol):
    """Copies the files of the record to another place, in a thread of its own.

    The thread that writes the heartbeat calls it. So no method raises, and only `fetch_error()` and `close()`, at the
    end, wait for a network. Names are those of the files in the run's folder, such as `metadata.json`.
    """

    def put(self, name: str, content: bytes) -> None:
        """Queue `content` for the copy; only the latest of each name counts. Never blocks, never raises."""

    def put_file(self, name: str, path: Path) -> None:
        """Queue a file, which is read when it is copied. Never blocks, never raises."""

    def state(self) -> dict[str, Any]:
        """Return the object `s3` of `metadata.json`. Never blocks, never raises."""

    def fetch_error(self, timeout_seconds: float) -> None:
        """Bring this attempt's `_error` into the folder, where the copy has one from another node. Never raises."""

    def close(self, timeout_seconds: float) -> bool:
        """Copy all that waits, and accept nothing more; False if that took too long. Never raises."""
