"""What all shell commands share: which run they report for, how they write its record, and how they end."""

# Shell commands load this: pathlib and contextlib are slow to import.
# ruff: noqa: PTH100, PTH118

from __future__ import annotations

import os
import sys

from trainwarden.identity import InvalidAttemptKey, InvalidRunId, check_run_id, current_attempt_key, host_name, rank
from trainwarden.record.folder import runs_path
from trainwarden.record.store import RecordStore
from trainwarden.shell.arguments import Help, Misuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from trainwarden.identity import AttemptKey

    Result = TypeVar("Result")

DONE, NOT_RECORDED, MISUSE = 0, 1, 2
# Options that every command has.
OPTIONS: Mapping[str, Callable[[str], Any]] = {"--run-id": str, "--runs-dir": str}

_S3_SECONDS = 10.0


class NotRecorded(Exception):
    """Nothing was recorded; the message is the reason. It is no reason for the training to end."""


class Superseded(NotRecorded):
    """A newer attempt owns the record."""


class CommandContext:
    """The run, attempt and rank that a shell command reports for; `store` is the run's record."""

    __slots__ = ("environ", "host", "key", "rank", "run_id", "store")

    def __init__(self, run_id: str, folder: str, key: AttemptKey, environ: Mapping[str, str]) -> None:
        self.run_id = run_id
        self.store = RecordStore(folder)
        self.key = key
        self.environ = environ
        self.rank = rank(environ)
        self.host = host_name()

    @property
    def folder(self) -> str:
        """The folder of the run's record."""
        return self.store.folder


def command_context(
    options: Mapping[str, Any], environ: Mapping[str, str], process: int | None = None
) -> CommandContext:
    """Return the context of a command.

    Args:
        options: `run-id` and `runs-dir`, where given.
        environ: of the shell. A key of a launcher or a scheduler in it comes before that of `process`.
        process: the shell's pid; our parent's if None.

    Raises:
        Misuse: no run is named, or a name or a variable is unusable.
    """
    run_id = options.get("run-id") or environ.get("TRAINWARDEN_RUN_ID")
    if not run_id:
        raise Misuse("no run is named; expected --run-id RUN_ID, or TRAINWARDEN_RUN_ID in the environment")
    try:
        check_run_id(run_id)
        key = current_attempt_key(environ, os.getppid() if process is None else process)
    except (InvalidRunId, InvalidAttemptKey) as error:
        raise Misuse(str(error)) from None
    given = options.get("runs-dir")
    runs = os.path.abspath(given) if given else runs_path(environ)
    return CommandContext(run_id, os.path.join(runs, run_id), key, environ)


def change_record(context: CommandContext, change: Callable[[], Result]) -> Result:
    """Return `change()`, called while the record is locked.

    Raises:
        NotRecorded: the folder cannot be written, or `change` raised it.
    """
    try:
        context.store.make_folder()
        with context.store.locked():
            return change()
    except OSError as error:
        raise NotRecorded(f"{error.filename or context.folder}: {error.strerror or error}") from None


def publish(context: CommandContext, names: list[str], *, strict: bool = False) -> list[str]:
    """Copy files of the record to S3, if the environment asks for a copy, in ten seconds or not at all.

    Args:
        context: of the command.
        names: of the files.
        strict: whether a variable that names no place in S3 is a misuse.

    Returns:
        Warnings to print.

    Raises:
        Misuse: a variable names no place in S3, and `strict`.
    """
    if not (context.environ.get("TRAINWARDEN_S3_URL") or context.environ.get("MONITORING_BUCKET")):
        return []
    # They load much that a record in a folder alone does not need.
    import time  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from trainwarden.clients.s3_location import InvalidLocation, records_location  # noqa: PLC0415
    from trainwarden.s3.uploader import upload_once  # noqa: PLC0415

    deadline = time.monotonic() + _S3_SECONDS
    for name in names:
        if name.startswith("ranks/"):
            continue
        try:
            place = records_location(None, context.environ)
            if place is not None:
                record, left = place.below(context.run_id), deadline - time.monotonic()
                upload_once(record, name, Path(context.folder, name), context.key, timeout_seconds=max(left, 0.1))
        except InvalidLocation as error:
            if strict:
                raise Misuse(f"{error}; the record in {context.folder} was written") from None
            return [f"recorded in {context.folder} alone, not in S3: {error}"]
        except Exception as error:  # noqa: BLE001  # nothing about S3 may end a training
            return [f"{name} was not copied to S3: {error}"]
    return []


def run(name: str, usage: str, body: Callable[[], list[str]], *, lenient: bool = False) -> int:
    """Run a command; returns its exit status.

    Args:
        name: of the command.
        usage: printed for `--help`.
        body: does the work, and returns warnings to print.
        lenient: whether the status is 0 where nothing could be recorded.
    """
    try:
        lines = body()
    except Help:
        sys.stdout.write(usage)
        return DONE
    except Misuse as error:
        _print_error(name, f"{error}; `trainwarden {name} --help` says more")
        return MISUSE
    except NotRecorded as error:
        _print_error(name, f"nothing was recorded: {error}")
        return DONE if lenient else NOT_RECORDED
    for line in lines:
        _print_error(name, line)
    return DONE


def _print_error(name: str, line: str) -> None:
    try:
        os.write(2, f"trainwarden {name}: {line}\n".encode("utf-8", "replace"))
    except OSError:
        return
