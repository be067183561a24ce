"""Where run records are and how a file of theirs is replaced, in plain text paths.

`trainwarden.record.folder` says the same in `Path`. This is for a command that a shell script calls all the time: it
loads nothing that takes long to load.
"""

# pathlib and contextlib are slow to import.
# ruff: noqa: PTH100, PTH105, PTH108, PTH111, PTH112, PTH118, PTH123, SIM105

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

METADATA = "metadata.json"
PROGRESS = "progress.json"
RANKS = "ranks"
OWNER = ".owner"
WRAPPER = ".wrapper"
WRITING = ".writing"

PHASES = ("init", "compile", "train", "eval", "checkpoint", "load", "idle", "done")

# What other monitors look up without asking whether it is there.
NULLABLE = frozenset(("step", "total_steps", "loss", "learning_rate"))

SHARED_RUNS = "/var/lib/trainwarden/runs"

_serial = 0


def runs_place(environ: Mapping[str, str] = os.environ) -> str:
    """The folder that holds one folder per run; it need not exist yet."""
    if given := environ.get("TRAINWARDEN_RUNS_DIR"):
        return os.path.abspath(given)
    if os.path.isdir(SHARED_RUNS) and os.access(SHARED_RUNS, os.W_OK | os.X_OK):
        return SHARED_RUNS
    state = environ.get("XDG_STATE_HOME", "")
    # The base directory specification has relative paths ignored.
    if not state.startswith("/"):
        state = os.path.expanduser(environ.get("HOME") or "~") + "/.local/state"
    return f"{state}/trainwarden/runs"


def write_temporary(path: str, content: bytes, *, durable: bool) -> str:
    """Write `content` beside `path`, ready to be renamed or linked to it; readable by whom the umask allows.

    The name is one that no other writer, on this host or another, uses at the same time.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    global _serial  # noqa: PLW0603  # each name is used once
    _serial += 1
    parent, name = os.path.split(path)
    temporary = os.path.join(parent, f".{name}.{os.uname().nodename}.{os.getpid()}.{_serial}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def replace(path: str, content: bytes, *, durable: bool = False) -> None:
    """Replace `path` at once: a reader sees the old content or the new, never a part.

    Raises:
        OSError: it could not be written; `path` is as before.
    """
    temporary = write_temporary(path, content, durable=durable)
    try:
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def encode(document: Mapping[str, Any]) -> bytes:
    """The document as the record's files hold it: strict JSON in ASCII. None is left out, or null if in `NULLABLE`.

    Raises:
        ValueError, TypeError: a value has no JSON form.
    """
    known = {key: value for key, value in document.items() if value is not None or key in NULLABLE}
    return json.dumps(known, allow_nan=False).encode("ascii") + b"\n"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
