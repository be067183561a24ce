"""The state that survives a restart of the exporter: one file for each run, counts and offsets together."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import replace_file
from trainwarden.regular_file import read_regular_file
from trainwarden_exporter.core.state_file import TAKEN_OVER, WAITS, base_folder, read_state, rename_damaged

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

KEPT_SECONDS = 7 * 24 * 3600.0
MAX_BYTES = 64 * 2**20
VERSION = 1
_NAME = re.compile(r"(?P<run>.+)\.json(?P<aside>\.damaged-\d+)?", re.DOTALL)


class StateFolderLocked(Exception):
    """Another exporter uses the folder."""


def default_folder(host: str, runs: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return systemd's folder, else the system's, else the user's; in it one folder for each host and runs folder."""
    return base_folder(environ) / f"{host}-{zlib.crc32(os.fsencode(runs.absolute())):08x}"


class StateFolder:
    """The folder of the state, locked for one exporter.

    Args:
        path: of the folder.
        waits: while another exporter uses it, read what that writes, and write once `hold` has got the lock.

    Raises:
        StateFolderLocked: another exporter uses it, and this one does not wait.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self._held = False
        path.mkdir(mode=0o700, parents=True, exist_ok=True)  # logs are not for every user
        self._lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._get_lock():
            return
        if not waits:
            os.close(self._lock)
            raise StateFolderLocked(f"{path}: another exporter keeps its state there")
        log.warning("%s: %s", path, WAITS)

    def hold(self) -> bool:
        """Return whether the folder is this exporter's to write; else try to get the lock."""
        if not self._held and self._get_lock():
            log.info("%s: %s", self.path, TAKEN_OVER)
        return self._held

    def _get_lock(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._held = True
        return self._held

    def read(self, run_id: str) -> tuple[dict[str, Any] | None, bool]:
        """Return the state of a run, None if there is none, and whether a damaged one was set aside."""
        path = self._file(run_id)
        try:
            document = read_state(path, MAX_BYTES, VERSION)
            if document.get("run") != run_id:
                raise ValueError(f"is no state of the run {run_id}")
        except FileNotFoundError:
            return None, False
        except (OSError, ValueError, RecursionError) as error:
            self.set_aside(run_id, str(error))
            return None, True
        return document, False

    def write(self, run_id: str, state: Mapping[str, Any]) -> None:
        """Replace the state of a run; raise `OSError` with the file's name if it cannot be written."""
        document, path = {"version": VERSION, "run": run_id, **state}, self._file(run_id)
        try:
            replace_file(path, json.dumps(document, separators=(",", ":")).encode("utf-8", "replace"))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error

    def set_aside(self, run_id: str, why: str) -> None:
        """Rename a state that cannot be used, where it may be written, and log it."""
        path = self._file(run_id)
        aside = rename_damaged(path) if self._held else path.name
        log.error(
            "%s: %s; it is kept as %s, and the logs of this run are read as if for the first time", path, why, aside
        )

    def prune(self) -> None:
        """Remove the states of runs that ended long ago, and nothing else: the folder may be one that others use."""
        now = time.time()
        with contextlib.suppress(OSError):
            for path in list(self.path.iterdir()):
                with contextlib.suppress(OSError):
                    if now - path.lstat().st_mtime > KEPT_SECONDS and _is_state(path):
                        path.unlink()

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)

    def _file(self, run_id: str) -> Path:
        return self.path / f"{run_id}.json"


def _is_state(path: Path) -> bool:
    """Return whether a file is the state of a run, or one that was set aside; raises `OSError` if it cannot be read."""
    name = _NAME.fullmatch(path.name)
    if name is None:
        return False
    if name["aside"]:
        return path.is_file()
    start = json.dumps({"version": VERSION, "run": name["run"]}, separators=(",", ":"))[:-1].encode()
    return read_regular_file(path, len(start)) == start
