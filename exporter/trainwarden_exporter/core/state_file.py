"""A small state of this node that survives a restart of the exporter: one JSON document in one file."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import replace_file
from trainwarden_exporter.core.state_folder import base_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 4 * 2**20


class StateFile:
    """A JSON object in a file, replaced as a whole.

    Args:
        path: of the file; None: nothing is kept.
        writable: whether `write` does anything; `--once` reads the state of the service and leaves it.
    """

    def __init__(self, path: Path | None, *, writable: bool = True) -> None:
        self.path = path
        self._writable = writable and path is not None
        self._fails = False

    def read(self) -> dict[str, Any] | None:
        """Return the stored object; None if there is none, or none that can be used."""
        if self.path is None:
            return None
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            document = json.loads(data) if len(data) <= MAX_BYTES else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is not used: %s", self.path, error)
            return None
        if not isinstance(document, dict) or document.get("version") != VERSION:
            log.warning("%s is not used: expected an object of version %d", self.path, VERSION)
            return None
        return document

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the object. Where that fails, log it once: what is counted then begins anew after a restart."""
        if self.path is None or not self._writable:
            return
        document = {"version": VERSION, **state}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(document, separators=(",", ":")).encode())
        except OSError as error:
            if not self._fails:
                log.warning("%s cannot be written, counts begin anew after a restart: %s", self.path, error)
            self._fails = True
        else:
            self._fails = False


def node_state(flags: Mapping[str, Any], host: str, name: str) -> StateFile:
    """Return a state file of this node, below `--path.state`."""
    base = flags.get("path.state") or base_folder()
    return StateFile(base / f"node-{host.replace('/', '_')}" / f"{name}.json", writable=not flags.get("once"))
