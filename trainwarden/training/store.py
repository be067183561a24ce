"""The run's folder and its copy elsewhere, as the thread that writes the record uses them."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwarden.record.folder import RANKS, encode, write_json
from trainwarden.training.copies import Copy

logger = logging.getLogger("trainwarden")


class Store:
    """Writes files by their names in the folder. The copy gets each too, also where the folder does not take it.

    What lies in `ranks/` is of this host's business alone, and stays here.
    """

    def __init__(self, folder: Path, copy: Copy | None) -> None:
        self.folder = folder
        self._copy = copy

    @property
    def has_copy(self) -> bool:
        """Whether there is a copy elsewhere."""
        return self._copy is not None

    def write(self, name: str, document: Mapping[str, Any], *, durable: bool = False) -> None:
        """Replace a file by a JSON document.

        Raises:
            OSError: the folder did not take it.
        """
        self.put(name, encode(document))
        path = self.folder / name
        try:
            write_json(path, document, durable=durable)
        except FileNotFoundError:
            # Somebody removed the folder under the run.
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, document, durable=durable)

    def put(self, name: str, content: bytes) -> None:
        """Have the copy alone take a file."""
        self._tell(lambda copy: copy.put(name, content), name)

    def put_file(self, name: str) -> None:
        """Have the copy take what is in the folder under this name when its turn comes."""
        self._tell(lambda copy: copy.put_file(name, self.folder / name), name)

    def copy_state(self) -> dict[str, Any] | None:
        """How the copy fares; None where there is none."""
        state: dict[str, Any] | None = self._tell(lambda copy: copy.state())
        return state

    def fetch_error(self, timeout_seconds: float) -> None:
        """Have the folder say how this attempt failed, where the copy knows it from another node."""
        self._tell(lambda copy: copy.fetch_error(timeout_seconds))

    def close(self, timeout_seconds: float) -> bool:
        """Let the copy finish what is waiting; False if that could not be done in time."""
        return self._tell(lambda copy: copy.close(timeout_seconds)) is not False

    def _tell(self, say: Callable[[Copy], Any], name: str = "") -> Any:
        if self._copy is None or name.startswith(f"{RANKS}/"):
            return None
        try:
            return say(self._copy)
        except Exception:  # it has promised not to, and what is here must not depend on that
            logger.warning("the copy of the run record in %s failed", self.folder, exc_info=True)
            return None
