"""Whether a checkpoint can be resumed from: complete, incomplete or unverifiable, with the evidence."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden.record.files import Checkpoint

_ZIP_START = b"PK\x03\x04"


@dataclass(frozen=True)
class Verdict:
    """`unverifiable`: nothing speaks against the checkpoint, and nothing known proves it."""

    answer: Literal["complete", "incomplete", "unverifiable"]
    evidence: str


def size_of(path: Path) -> int | None:
    """Bytes of a file, or of all plain files below a folder; None if that cannot be found out."""
    try:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        return sum(_sizes_below(path))
    except OSError:
        return None


def verify(path: Path, expected_bytes: int | None = None) -> Verdict:
    """Judge the checkpoint at `path`; reads no more than sizes and a zip file's directory. Never raises.

    Args:
        path: a file or a folder.
        expected_bytes: its size when it was saved, None if that is not known.
    """
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return Verdict("incomplete", "it does not exist")
    except (OSError, ValueError) as error:
        return Verdict("unverifiable", f"it cannot be looked at: {error}")
    size = size_of(path)
    if size is None:
        return Verdict("unverifiable", "its size cannot be found out")
    if size == 0:
        return Verdict("incomplete", "it is empty")
    if expected_bytes is not None and size < expected_bytes:
        return Verdict("incomplete", f"it has {size} bytes, and had {expected_bytes} when it was saved")
    broken = None if is_folder else _broken_zip(path)
    if broken:
        return Verdict("incomplete", broken)
    if expected_bytes is not None and size > expected_bytes:
        # A late shard or a marker that another tool left: something was added, and nothing need be missing.
        return Verdict("unverifiable", f"it has {size} bytes, more than the {expected_bytes} when it was saved")
    if expected_bytes is None:
        return Verdict("unverifiable", f"it has {size} bytes, and how many it should have is not known")
    return Verdict("complete", f"it has the {size} bytes that it had when it was saved")


def choose(candidates: Iterable[Checkpoint]) -> tuple[Checkpoint | None, list[str]]:
    """The first complete one, else the first that nothing speaks against; and a line for each that was passed over."""
    unproven: Checkpoint | None = None
    passed_over: list[str] = []
    for candidate in candidates:
        verdict = verify(Path(candidate.path), candidate.size_bytes)
        if verdict.answer == "complete":
            return candidate, passed_over
        passed_over.append(f"checkpoint {candidate.path} is {verdict.answer}: {verdict.evidence}")
        if verdict.answer == "unverifiable" and unproven is None:
            unproven = candidate
    return unproven, passed_over


def _sizes_below(folder: Path) -> Iterable[int]:
    def fail(error: OSError) -> None:
        raise error

    for base, _, names in os.walk(folder, onerror=fail):
        for name in names:
            status = os.lstat(os.path.join(base, name))  # noqa: PTH118  # thousands of shards need no Path each
            if stat.S_ISREG(status.st_mode):
                yield status.st_size


def _broken_zip(path: Path) -> str | None:
    import zipfile  # noqa: PLC0415  # slow to import, and needed once

    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == _ZIP_START
        if not is_zip:
            # Every .npz is a zip file; a .pt may be older than that format.
            return "it is no zip file, as every .npz is" if path.suffix == ".npz" else None
        with zipfile.ZipFile(path) as archive:
            return None if archive.namelist() else "its zip directory is empty"
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        return f"its zip directory cannot be read: {error}"
