"""A small state of this node that survives a restart of the exporter: one JSON document in one file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import replace_file
from trainwarden.regular_file import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainwarden_exporter.core.node import Node

log = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 4 * 2**20
# A disk that answers has the document by then; one that does not costs the caller no more than this, once.
WAIT_SECONDS = 1.0
# What could not be written is tried again so often, for it may not change for months.
RETRY_SECONDS = 60.0
# An exporter locks this file, and writes its own name to it, before it writes the files of state beside it.
LOCK, HOLDER = ".lock", uuid.uuid4().hex
WAITS = "another exporter keeps its state there; this one does once that has ended"
TAKEN_OVER = "the other exporter has ended; this one keeps its state there from now on"
# Folders by whether this process holds their locks, until it ends.
_held: dict[Path, bool] = {}
_locking = threading.Lock()


class StateFile:
    """A JSON object in a file, replaced as a whole. Writing waits only for a disk that answers.

    Args:
        path: of the file; None: nothing is kept.
        writable: whether `write` does anything; `--once` reads the state of the service and leaves it.
        may_write: asked before each write; while it returns False, what is to be written waits.
        durable: write it through to the disk, for what changes seldom and must survive a reset of the node.
        machine: identifies the machine: what was stored on another is not used.
        retry_seconds: after which a write that failed is tried again.

    Attributes:
        writable: `write` does something, at once or later.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        writable: bool = True,
        may_write: Callable[[], bool] = lambda: True,
        durable: bool = False,
        machine: str = "",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.path = path
        self.machine = machine
        self.writable = writable and path is not None
        self._may_write = may_write
        self._durable = durable
        self._lock = threading.Lock()
        self._pending: Mapping[str, Any] | None = None
        self._writer: threading.Thread | None = None
        self._retry_seconds = retry_seconds
        # Something is to be written; what was to be written is, or cannot be.
        self._wanted, self._settled = threading.Event(), threading.Event()
        self._fails = False
        self._is_there = False

    def read(self) -> dict[str, Any] | None:
        """Return the stored object; None if there is none, or none that can be used: it is set aside then."""
        if self.path is None:
            return None
        try:
            document = read_state(self.path, MAX_BYTES, VERSION)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.set_aside(str(error))
            return None
        self._is_there = True
        if document.get("machine", self.machine) != self.machine:
            log.warning("%s is of another machine: what it held begins anew", self.path)
            return None
        return document

    def set_aside(self, why: str) -> None:
        """Rename a file that cannot be used, where it may be written, and log it."""
        if self.path is not None:
            aside = rename_damaged(self.path) if self.writable and self._may_write() else self.path.name
            log.error("%s is not used, what it held begins anew: %s; kept as %s", self.path, why, aside)

    def was_removed(self) -> bool:
        """Return whether the file was removed, from a folder that is there, since it was read or written."""
        try:
            removed = self._is_there and self.path is not None and self.path.parent.is_dir() and not self.path.exists()
        except OSError:
            return False
        if removed:
            self._is_there = False
        return removed

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the object, in another thread; of several that wait for a slow disk the last is written.

        Where that fails, log it once, and try again: what is counted until then begins anew after a restart. Try
        again as well while it may not be written.
        """
        if not self.writable:
            return
        with self._lock:
            self._pending = {"version": VERSION, "machine": self.machine, **state}
            self._wanted.set()
            if self._writer is not None:
                return
            self._settled.clear()
            self._writer = threading.Thread(target=self._write_pending, name="state-file", daemon=True)
            self._writer.start()
        self._settled.wait(WAIT_SECONDS)

    def _write_pending(self) -> None:
        while True:
            with self._lock:
                self._wanted.clear()
                document, self._pending = self._pending, None
                if document is None or self.path is None:
                    self._writer = None
                    self._settled.set()
                    return
            if not self._may_write() or not self._replace(self.path, document):
                self._put_back(document)
                self._settled.set()
                self._wanted.wait(self._retry_seconds)

    def _replace(self, path: Path, document: Mapping[str, Any]) -> bool:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, json.dumps(document, separators=(",", ":")).encode(), durable=self._durable)
        except OSError as error:
            if not self._fails:
                log.warning("%s cannot be written, what it holds begins anew after a restart: %s", path, error)
            self._fails = True
            return False
        self._fails, self._is_there = False, True
        return True

    def _put_back(self, document: Mapping[str, Any]) -> None:
        with self._lock:
            if self._pending is None:
                self._pending = document


def read_state(path: Path, most_bytes: int, version: int) -> dict[str, Any]:
    """Return the JSON object in a file of state.

    Raises:
        ValueError: it is none of this version, or larger.
        RecursionError: it is nested too deeply.
        OSError: it cannot be read.
    """
    data = read_regular_file(path, most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"is larger than {most_bytes} bytes")
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != version:
        raise ValueError(f"is no state of version {version}")
    return document


def rename_damaged(path: Path) -> str:
    """Rename a file of state that cannot be used, if that can be done; return its name then."""
    aside = path.with_name(f"{path.name}.damaged-{time.time():.0f}")
    try:
        path.replace(aside)
    except OSError:
        return path.name
    return aside.name


def base_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where exporters keep their state: systemd's folder, else the system's, else the user's."""
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    system = Path("/var/lib/trainwarden")
    if system.is_dir() and os.access(system, os.W_OK | os.X_OK):
        return system / "exporter"
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environ.get("HOME") or "/") / ".local" / "state"
    return base / "trainwarden" / "exporter"


def node_state(flags: Mapping[str, Any], node: Node, name: str, *, durable: bool = False) -> StateFile:
    """Return a state file of this node, below `--path.state`; several exporters may read it, and one of them writes."""
    folder = (flags.get("path.state") or base_folder()) / f"node-{node.host.replace('/', '_')}"
    path, writable = folder / f"{name}.json", not flags.get("once")
    if writable:
        hold_lock(folder)  # from its start on, whatever it writes later
    may_write = partial(hold_lock, folder)
    return StateFile(path, writable=writable, may_write=may_write, durable=durable, machine=machine_of(node))


def machine_of(node: Node) -> str:
    """Return what distinguishes this machine from a clone of its disk: its type and its machine id."""
    return "/".join(map(_content, (node.sysfs / "class/dmi/id/product_name", node.rootfs / "etc/machine-id")))


def hold_lock(folder: Path) -> bool:
    """Return whether no other exporter writes to the folder: this process has its lock, until it ends.

    Where another one has it, log that, wait for its end in another thread, and log that this one has it then.
    """
    with _locking:
        if folder not in _held:
            lock = _opened(folder)
            _held[folder] = lock is None or _lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None and not _held[folder]:
                log.warning("%s: %s", folder, WAITS)
                threading.Thread(target=_take_over, args=(folder, lock), name="state-lock", daemon=True).start()
        return _held[folder]


def is_held_by(holder: str, folder: Path) -> bool:
    """Return whether the exporter of that name has the folder's lock; for its child processes."""
    try:
        return (folder / LOCK).read_text(errors="replace") in (holder, "")  # a full disk takes no name
    except OSError:
        return True  # what cannot be written is reported where it is written


def _opened(folder: Path) -> int | None:
    """Return a descriptor of the folder's lock; None where there can be none: that is reported where it is written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _lock(lock: int, operation: int) -> bool:
    """Lock a file, and write the name of this process to it; return False where another process has locked it."""
    try:
        fcntl.flock(lock, operation)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, HOLDER.encode(), 0)
    return True


def _take_over(folder: Path, lock: int) -> None:
    _held[folder] = _lock(lock, fcntl.LOCK_EX)
    log.info("%s: %s", folder, TAKEN_OVER)


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:128]
    except OSError:
        return ""
