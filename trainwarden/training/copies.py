"""A second place that a run's record is kept in."""

from pathlib import Path
from typing import Any, Protocol


class Copy(Protocol):
    """Takes what the record's files say to somewhere else, in a thread of its own.

    The thread that carries the run's liveness calls it, so nothing here waits for a network, but `bring_error()` and
    `close()` at the end, and nothing raises. Names are those of the files in the run's folder, such as `metadata.json`.
    """

    def put(self, name: str, content: bytes) -> None:
        """Have a file replaced by `content`; only the latest of each name counts. Never blocks, never raises."""

    def put_file(self, name: str, path: Path) -> None:
        """Have a file replaced by what `path` holds when its turn comes. Never blocks, never raises."""

    def state(self) -> dict[str, Any]:
        """How the copy fares, as `metadata.json` says it in `s3`: strict JSON. Never blocks, never raises."""

    def bring_error(self, timeout_seconds: float) -> None:
        """Have the folder say how this attempt failed, where the copy knows it from another node. Never raises."""

    def close(self, timeout_seconds: float) -> bool:
        """Finish what is waiting; False if that could not be done in time. Nothing is taken after. Never raises."""
