"""Where the records of runs are, a folder or a prefix in S3, and how a command line names that place."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainwarden.beneath import open_inside
from trainwarden.clients.s3 import DENIED, INVALID, MISSING, S3Bucket, S3Error
from trainwarden.clients.s3_boto3 import MissingBoto3, load_boto3
from trainwarden.clients.s3_location import InvalidLocation, S3Location, records_location
from trainwarden.errors import UsageError
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import (
    COMPLETE,
    ERROR,
    ERRORS,
    EVENTS,
    LOG,
    METADATA,
    PROGRESS,
    RESTART,
    SUMMARY,
    run_folder,
    run_folders,
    runs_dir,
)

if TYPE_CHECKING:
    import argparse

# What is read of S3 for a run's state, and beyond that for its history.
STATE_FILES = frozenset((METADATA, PROGRESS, ERROR, COMPLETE, RESTART))
HISTORY_FILES = frozenset((SUMMARY, EVENTS, f"{EVENTS}.1", ERRORS, f"{ERRORS}.1"))
_LOG_BYTES = 64 * 1024
_THREADS = 8
_MAX_NEAR = 5


class CannotRead(Exception):
    """Records could not be read this time; the message is one line. `is_final`: another try gives the same."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class RunNotFound(UsageError):
    """There is no such run; the message lists runs with names like it."""


class RecordPlace(Protocol):
    """A place that holds the records of runs; used as a context manager."""

    def __enter__(self) -> RecordPlace: ...
    def __exit__(self, *_: object) -> None: ...

    def __str__(self) -> str: ...

    def names(self) -> list[str]:
        """Return the ids of the runs there, sorted; raises CannotRead and UsageError."""

    def fetch(self, run_id: str, *, history: bool = False) -> Path | None:
        """Return a folder with the files of a record; None if there is no such run. Raises CannotRead.

        Args:
            run_id: of the run.
            history: with summaries and journals.
        """

    def where(self, run_id: str) -> str:
        """Return where people find the record: a path, or an address of S3; empty where it is not kept."""

    def console(self, run_id: str) -> str | None:
        """Return the address of a page that shows the run's logs; None if there is none."""


class RecordFolder:
    """The folder of the run records of this node, or one that nodes share.

    Args:
        runs: the folder.
        is_kept: whether people find the records there later.
    """

    def __init__(self, runs: Path, *, is_kept: bool = True) -> None:
        self._runs = runs
        self._is_kept = is_kept

    def __enter__(self) -> RecordFolder:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __str__(self) -> str:
        return str(self._runs)

    def names(self) -> list[str]:
        """Return the ids of the runs there; raises UsageError where there is no such folder, or no right to read it."""
        if not self._is_folder(self._runs):
            raise UsageError(
                f"{self._runs}: no such folder; expected that of the run records, --runs-dir or $TRAINWARDEN_RUNS_DIR"
            )
        if not os.access(self._runs, os.R_OK | os.X_OK):
            raise self._not_readable()
        return [folder.name for folder in run_folders(self._runs)]

    def fetch(self, run_id: str, *, history: bool = False) -> Path | None:  # noqa: ARG002  # all of it is there
        """Return the folder of a run; raises UsageError without the right to look it up."""
        folder = run_folder(run_id, self._runs)
        return folder if self._is_folder(folder) else None

    def where(self, run_id: str) -> str:
        """Return the path of a run's folder; empty where it is not kept."""
        return str(self._runs / run_id) if self._is_kept else ""

    def console(self, run_id: str) -> str | None:  # noqa: ARG002  # files have no page
        """Return None."""
        return None

    def _is_folder(self, path: Path) -> bool:
        try:
            return path.is_dir()
        except PermissionError:
            raise self._not_readable() from None

    def _not_readable(self) -> UsageError:
        return UsageError(f"{self._runs}: this user cannot read that folder")


class RecordPrefix:
    """A prefix in S3. What was read is kept in a temporary folder until the end, and read again when it changes.

    Raises:
        UsageError: boto3 is not installed.
    """

    def __init__(self, location: S3Location) -> None:
        try:
            load_boto3()
        except MissingBoto3:
            raise UsageError("S3 needs boto3: pip install 'trainwarden[s3]'") from None
        self.location = location
        self.bucket = S3Bucket(location, connections=_THREADS)
        self._copy = tempfile.TemporaryDirectory(prefix="trainwarden-")
        self._etags: dict[str, str] = {}

    def __enter__(self) -> RecordPrefix:
        return self

    def __exit__(self, *_: object) -> None:
        self._copy.cleanup()

    def __str__(self) -> str:
        return str(self.location)

    def names(self) -> list[str]:
        """Return the ids of the runs there, sorted."""
        found, token = [], None
        try:
            while True:
                page = self.bucket.page("", token)
                found += [name for name in page.folders if _is_run_id(name)]
                token = page.token
                if token is None:
                    return sorted(found)
        except S3Error as error:
            raise _cannot_read(error) from None

    def fetch(self, run_id: str, *, history: bool = False) -> Path | None:
        """Copy what has changed of a record, and return the folder of the copy."""
        wanted = STATE_FILES | HISTORY_FILES if history else STATE_FILES
        folder = Path(self._copy.name) / check_run_id(run_id)
        try:
            page = self.bucket.page(f"{run_id}/")
            if not page.entries and not page.folders:
                return None
            folder.mkdir(exist_ok=True)
            there = {entry.name: entry.etag for entry in page.entries}
            for name, etag in there.items():
                is_summary = history and name.startswith("summary.") and name.endswith(".json") and "/" not in name
                if name in wanted or is_summary:
                    self._copy_object(run_id, name, folder / name, etag)
            for name in wanted - there.keys():
                (folder / name).unlink(missing_ok=True)
            if LOG.partition("/")[0] in page.folders:
                self._copy_log(run_id, folder / LOG)
        except S3Error as error:
            raise _cannot_read(error) from None
        return folder

    def fetch_all(self, run_ids: list[str]) -> None:
        """Copy many records at once; what fails fails again, with its reason, in `fetch`."""

        def copy(run_id: str) -> None:
            try:
                self.fetch(run_id)
            except CannotRead:
                return

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(copy, run_ids))

    def where(self, run_id: str) -> str:
        """Return the address of a run's record."""
        return str(self.location.below(run_id))

    def console(self, run_id: str) -> str | None:
        """Return the address of the run's logs in the console of AWS; None for a server of another owner."""
        return self.location.console_url(f"{run_id}/logs/") if self.bucket.is_aws else None

    def _copy_object(self, run_id: str, name: str, path: Path, etag: str) -> None:
        key = f"{run_id}/{name}"
        if path.exists() and self._etags.get(key) == etag:
            return
        stored = self.bucket.get(key)
        if stored is None:
            path.unlink(missing_ok=True)
            return
        path.write_bytes(stored.data)
        os.utime(path, (stored.modified, stored.modified))
        self._etags[key] = stored.etag

    def _copy_log(self, run_id: str, path: Path) -> None:
        key = f"{run_id}/{LOG}"
        try:
            stored = self.bucket.get_changed(key, self._etags.get(key), last=_LOG_BYTES)
        except S3Error as error:
            if error.reason in (MISSING, INVALID):  # S3 refuses the end of an empty object
                return
            raise
        if stored is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(stored.data)
            self._etags[key] = stored.etag


def add_place_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --s3 and --runs-dir."""
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--s3",
        metavar="s3://BUCKET/PREFIX",
        nargs="?",
        const="",
        help="read the records there; without a value, in $TRAINWARDEN_S3_URL or $MONITORING_BUCKET",
    )
    places.add_argument(
        "--runs-dir",
        type=Path,
        help="the folder that holds one folder per run (default: $TRAINWARDEN_RUNS_DIR, else /var/lib/trainwarden/runs "
        "where it is writable, else ~/.local/state/trainwarden/runs)",
    )


def open_place(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ, *, prefer_s3: bool = False
) -> RecordFolder | RecordPrefix:
    """Return the place that the arguments of `add_place_arguments` name, else the environment.

    Args:
        arguments: of the command line.
        environ: as `records_location` and `runs_dir` read it.
        prefer_s3: whether a place in S3 that the environment names comes before the folder.

    Raises:
        UsageError: the place is none.
    """
    try:
        if arguments.s3 is not None or (prefer_s3 and arguments.runs_dir is None):
            location = records_location(arguments.s3, environ)
            if location is not None:
                return RecordPrefix(location)
            if arguments.s3 is not None:
                raise UsageError("--s3: expected s3://BUCKET/PREFIX, or TRAINWARDEN_S3_URL or MONITORING_BUCKET set")
    except InvalidLocation as error:
        raise UsageError(str(error)) from None
    return RecordFolder(arguments.runs_dir or runs_dir(environ))


def fetch_run(place: RecordPlace, run_id: str, *, history: bool = False) -> Path:
    """Return the folder of a run's record.

    Raises:
        RunNotFound: there is none; the message lists near names.
        CannotRead: the place cannot be read now.
    """
    try:
        folder = place.fetch(run_id, history=history)
    except InvalidRunId as error:
        raise RunNotFound(str(error)) from None
    if folder is not None:
        return folder
    names = place.names()
    raise RunNotFound(f"there is no run {run_id!r} in {place}; {_near(run_id, names)}")


def log_tail(folder: Path, size: int = _LOG_BYTES) -> bytes:
    """Return the last `size` bytes of the run's output; none if there is no output, or it cannot be read."""
    try:
        # Users own records: no link is followed, no pipe waited for.
        with open(open_inside(str(folder), str(folder / LOG)), "rb") as file:  # noqa: PTH123  # a descriptor
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return b""
            file.seek(max(0, status.st_size - size))
            return file.read(size)
    except OSError:
        return b""


def last_log_line(folder: Path) -> str | None:
    """Return the last line of the run's output that is not empty; None if there is none."""
    lines = log_tail(folder).decode("utf-8", "replace").splitlines()
    # Of a progress bar the last state counts.
    printed = (line.rsplit("\r", 1)[-1].strip() for line in reversed(lines))
    return next((line for line in printed if line), None)


def raw_phase(folder: Path) -> str | None:
    """Return the phase as the writer of `metadata.json` spelled it; None if it states none."""
    source = read_json(folder / METADATA)
    return source.text("phase") if isinstance(source, JsonObject) else None


def _near(run_id: str, names: list[str]) -> str:
    import difflib  # noqa: PLC0415  # for mistakes alone

    if not names:
        return "there are no runs at all"
    near = difflib.get_close_matches(run_id, names, _MAX_NEAR, 0.5)
    near += [name for name in names if name not in near and (name.startswith(run_id) or run_id in name)]
    if near:
        return f"near names: {', '.join(near[:_MAX_NEAR])}"
    return f"the last of {len(names)}: {', '.join(names[-_MAX_NEAR:])}"


def _is_run_id(name: str) -> bool:
    try:
        check_run_id(name)
    except InvalidRunId:
        return False
    return True


def _cannot_read(error: S3Error) -> CannotRead:
    return CannotRead(str(error), is_final=error.reason in (DENIED, MISSING, INVALID))
