"""The copy of one prefix's records on this node: run folders as the library writes them, and an index."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainwarden.clients.s3 import S3Object

INDEX = ".s3.json"
# So much of the end of a log is copied, at most.
LOG_BYTES = 64 * 2**10
VERSION = 1


def copy_folder(cache: Path, url: str) -> Path:
    """Return the folder in which the records of a prefix are."""
    bucket = url.removeprefix("s3://").partition("/")[0]
    return cache / f"{bucket}-{zlib.crc32(url.encode()):08x}"


@dataclass
class CopiedRun:
    """One run.

    Attributes:
        etags: of the objects that were copied, by name.
        looked: when S3 last listed it, Unix seconds.
    """

    etags: dict[str, str] = field(default_factory=dict)
    looked: float = 0.0


class LocalCopy:
    """The folder of one prefix; runs that its index does not list are removed. Threads may share it, but no run.

    Attributes:
        is_aws: the prefix is in AWS itself.
    """

    def __init__(self, path: Path, url: str = "") -> None:
        self.path = path
        self.is_aws = False
        self._url = url
        path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self.runs: dict[str, CopiedRun] = _read_index(path)
        for entry in list(path.iterdir()):
            if entry.is_dir() and entry.name not in self.runs:
                shutil.rmtree(entry, ignore_errors=True)

    def run(self, run_id: str) -> CopiedRun:
        """Return the state of a run's copy, and create its folder."""
        with self._lock:
            known = self.runs.setdefault(run_id, CopiedRun())
        (self.path / run_id).mkdir(exist_ok=True)
        return known

    def etag(self, run_id: str, name: str) -> str | None:
        """Return the ETag of the object that a file was copied from; None where the file is not there."""
        return self.runs[run_id].etags.get(name) if (self.path / run_id / name).exists() else None

    def write(self, run_id: str, name: str, content: S3Object) -> None:
        """Write one file; its time is the object's, by this machine's clock. Raises `OSError` with the file's name."""
        path = self.path / run_id / name
        # The time is set before the file has its name: with a fresh one the run would look alive.
        temporary = path.with_name(f".{path.name}.new")
        with _named(path):
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(content.data)
            os.utime(temporary, (content.modified, content.modified))
            temporary.replace(path)
        self.runs[run_id].etags[name] = content.etag

    def remove(self, run_id: str, name: str) -> None:
        """Remove one file, which S3 no longer has."""
        (self.path / run_id / name).unlink(missing_ok=True)
        self.runs[run_id].etags.pop(name, None)

    def set_time(self, run_id: str, modified: float) -> None:
        """Set the time of a run's folder to that of its newest object, Unix seconds."""
        os.utime(self.path / run_id, (modified, modified))

    def drop(self, run_id: str) -> None:
        """Remove a run."""
        with self._lock:
            self.runs.pop(run_id, None)
        shutil.rmtree(self.path / run_id, ignore_errors=True)

    def save(self) -> None:
        """Write the index; raises `OSError`, with the file's name, if it cannot be written."""
        runs = {run_id: {"etags": run.etags, "looked": run.looked} for run_id, run in self.runs.items()}
        document = {"version": VERSION, "url": self._url, "is_aws": self.is_aws, "runs": runs}
        with _named(self.path / INDEX):
            replace_file(self.path / INDEX, json.dumps(document, separators=(",", ":")).encode())


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have an `OSError` name the file: a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _read_index(path: Path) -> dict[str, CopiedRun]:
    """Return the runs of the index; none if it is damaged, which costs one more download."""
    with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, TypeError, InvalidRunId):
        document = json.loads((path / INDEX).read_bytes())
        if document["version"] == VERSION:
            return {
                check_run_id(run_id): CopiedRun(dict(run["etags"]), float(run["looked"]))
                for run_id, run in document["runs"].items()
            }
    return {}
