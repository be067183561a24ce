"""Where run records live, what their files are called, and how they are replaced."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden.identity import InvalidRunId, check_run_id, host_name

METADATA = "metadata.json"
PROGRESS = "progress.json"
CHECKPOINTED = "checkpoint.json"
RANKS = "ranks"
EVENTS = "events.jsonl"
ERRORS = "errors.jsonl"
SUMMARY = "summary.json"
ERROR = "_error"
COMPLETE = "_complete"
RESTART = "_restart"
OWNER = ".owner"
LOG = "logs/training_log_latest.txt"
CHECKPOINTS = "checkpoints"

# What other monitors look up without asking whether it is there.
NULLABLE = frozenset(("step", "total_steps", "loss", "learning_rate"))

SHARED_RUNS = Path("/var/lib/trainwarden/runs")

_serial = itertools.count()


def runs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds one folder per run; it need not exist yet."""
    if given := environ.get("TRAINWARDEN_RUNS_DIR"):
        return Path(given).absolute()
    if SHARED_RUNS.is_dir() and os.access(SHARED_RUNS, os.W_OK | os.X_OK):
        return SHARED_RUNS
    state = environ.get("XDG_STATE_HOME", "")
    # The base directory specification has relative paths ignored.
    home = Path(state) if state.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".local/state"
    return home / "trainwarden" / "runs"


def run_folder(run_id: str, runs: Path | None = None) -> Path:
    """The folder of one run's record; it need not exist yet.

    Raises:
        InvalidRunId: `run_id` cannot name a run.
    """
    return (runs_dir() if runs is None else runs) / check_run_id(run_id)


def run_folders(runs: Path) -> Iterator[Path]:
    """Every folder in `runs` whose name is a run id, by name; nothing if `runs` cannot be read."""
    try:
        names = sorted(entry.name for entry in os.scandir(runs) if entry.is_dir())
    except OSError:
        return
    for name in names:
        with contextlib.suppress(InvalidRunId):
            yield runs / check_run_id(name)


def temporary_beside(path: Path) -> Path:
    """A name in the same folder that no other writer, on this host or another, uses at the same time."""
    return path.with_name(f".{path.name}.{host_name()}.{os.getpid()}.{next(_serial)}.tmp")


def write_temporary(path: Path, content: bytes, *, durable: bool) -> Path:
    """Write `content` beside `path`, ready to be renamed or linked to it; readable by whom the umask allows.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    temporary = temporary_beside(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor has no path
            file.write(content)
            if durable:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace `path` at once: a reader sees the old content or the new, never a part.

    Raises:
        OSError: it could not be written; `path` is as before.
    """
    temporary = write_temporary(path, content, durable=durable)
    try:
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def encode(document: Mapping[str, Any]) -> bytes:
    """The document as the record's files hold it: strict JSON in ASCII. None is left out, or null if in `NULLABLE`.

    Raises:
        ValueError, TypeError: a value has no JSON form.
    """
    known = {key: value for key, value in document.items() if value is not None or key in NULLABLE}
    return json.dumps(known, allow_nan=False).encode("ascii") + b"\n"


def write_json(path: Path, document: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace `path` by `document`; see `encode` and `replace_file`."""
    replace_file(path, encode(document), durable=durable)
