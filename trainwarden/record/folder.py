"""Where run records are, what their files are called, and how a file is replaced.

Shell commands load this, so `pathlib`, `contextlib` and `tempfile` are left to the functions that need them.
"""

# ruff: noqa: PTH100, PTH105, PTH108, PTH111, PTH112, PTH118, PTH123, SIM105

from __future__ import annotations

import json
import os

from trainwarden.identity import InvalidRunId, check_run_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

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
CAPTURE = "_capture"
RESUME = "resume.json"
OWNER = ".owner"
WRAPPER = ".wrapper"
WRITING = ".writing"
LOG = "logs/training_log_latest.txt"
CHECKPOINTS = "checkpoints"

# How often a process that records an attempt writes a sign of life.
LIVENESS_SECONDS = 5.0

PHASES = ("init", "compile", "train", "eval", "checkpoint", "load", "idle", "done")

# Keys that other monitors read without asking whether they are there: null where unknown, instead of absent.
NULLABLE = frozenset(("step", "total_steps", "loss", "learning_rate"))

SHARED_RUNS = "/var/lib/trainwarden/runs"

_serial = 0


def runs_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that holds one folder per run; it need not exist yet."""
    if given := environ.get("TRAINWARDEN_RUNS_DIR"):
        return os.path.abspath(given)
    if os.path.isdir(SHARED_RUNS) and os.access(SHARED_RUNS, os.W_OK | os.X_OK):
        return SHARED_RUNS
    state = environ.get("XDG_STATE_HOME", "")
    # The base directory specification has relative paths ignored.
    if not state.startswith("/"):
        state = os.path.expanduser(environ.get("HOME") or "~") + "/.local/state"
    return f"{state}/trainwarden/runs"


def runs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `runs_path` as a `Path`."""
    from pathlib import Path  # noqa: PLC0415  # see above

    return Path(runs_path(environ))


def run_folder(run_id: str, runs: Path | None = None) -> Path:
    """Return the folder of one run's record; it need not exist yet.

    Raises:
        InvalidRunId: `run_id` cannot name a run.
    """
    return (runs_dir() if runs is None else runs) / check_run_id(run_id)


def run_folders(runs: Path) -> Iterator[Path]:
    """Yield every folder in `runs` whose name is a run id, by name; nothing if `runs` cannot be read."""
    try:
        names = sorted(entry.name for entry in os.scandir(runs) if entry.is_dir())
    except OSError:
        return
    for name in names:
        try:
            yield run_folder(name, runs)
        except InvalidRunId:  # noqa: PERF203  # one list in many seconds
            continue


def encode(document: Mapping[str, Any]) -> bytes:
    """Return the document as the record's files hold it: strict JSON in ASCII, None left out but in `NULLABLE`.

    Raises:
        ValueError, TypeError: a value has no JSON form.
    """
    known = {key: value for key, value in document.items() if value is not None or key in NULLABLE}
    return json.dumps(known, allow_nan=False).encode("ascii") + b"\n"


def write_temporary(path: str, content: bytes, *, durable: bool, mode: int = 0o666) -> str:
    """Write `content` beside `path`, ready to be renamed or linked to it, with what the umask leaves of `mode`.

    No other writer, on this host or another, uses the same name at the same time.

    Returns:
        The path of the temporary file.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    global _serial  # noqa: PLW0603  # each name is used once
    _serial += 1
    parent, name = os.path.split(path)
    temporary = os.path.join(parent, f".{name}.{os.uname().nodename}.{os.getpid()}.{_serial}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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


def replace_file(path: str | os.PathLike[str], content: bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Replace `path` at once: a reader sees the old content or the new, never a part.

    Args:
        path: of the file.
        content: new content.
        durable: write it through to the disk first.
        mode: permissions, of which the umask takes away.

    Raises:
        OSError: it could not be written; `path` is as before.
    """
    temporary = write_temporary(os.fspath(path), content, durable=durable, mode=mode)
    try:
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def write_json(path: str | os.PathLike[str], document: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace `path` by `document`; see `encode` and `replace_file`."""
    replace_file(path, encode(document), durable=durable)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
