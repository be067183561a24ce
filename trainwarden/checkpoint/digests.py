"""Digests of a checkpoint's files, in a manifest beside them: they prove its content.

The manifest is `.trainwarden-digests.json` in the checkpoint's folder, or `.<name>.trainwarden-digests.json` beside one
that is a file: `{"version", "time", "files": {path: {"bytes", "sha256", "sampled"}}}`. `sampled` is the SHA-256 of some
blocks of the file, so that a verification can compare it without reading all of it.

The run of a training computes them in a process of its own: `python -m trainwarden.checkpoint.digests PID PATH`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.checkpoint import names
from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.checkpoint.tree import Listing
from trainwarden.checkpoint.verdict import Findings, abbreviated
from trainwarden.deadline import Deadline, DeadlineExceeded
from trainwarden.record.clock import from_iso, to_iso
from trainwarden.record.folder import replace_file

if TYPE_CHECKING:
    from types import FrameType

_VERSION = 1
_BLOCKS = 8
_BLOCK_BYTES = 4096
_PIECE_BYTES = 4 * 2**20
_NICENESS = 19
_NO_LIMIT_SECONDS = 1e9


class Changed(Exception):
    """A file changed while it was read."""


def manifest_path(path: str | os.PathLike[str]) -> Path:
    """Return where the manifest of a checkpoint, a file or a folder, belongs."""
    place = Path(path)
    is_file = not place.is_dir()
    return (place.parent if is_file else place) / names.manifest(place.name, is_file=is_file)


def write_manifest(path: str, *, parent: int | None = None) -> tuple[int, int]:
    """Compute the digests of a checkpoint's files and write the manifest; return the files and bytes that were read.

    An older manifest is removed first: one that is there is never of an earlier save.

    Args:
        path: of the checkpoint, a file or a folder.
        parent: pid of the process without which the work is pointless; None if there is none.

    Raises:
        OSError: a file cannot be read, or the manifest not be written.
        Changed: a file changed meanwhile.
        DeadlineExceeded: the parent has ended.
    """
    from hashlib import sha256  # noqa: PLC0415  # it loads OpenSSL, which most trainings do not need

    manifest_path(path).unlink(missing_ok=True)
    is_file = not Path(path).is_dir()
    # Files are changed after the listing or before: a manifest is of files that were the same throughout.
    before = _listing(path, is_file=is_file)
    tree, files = FolderTree(path), {}
    for name, size in sorted(before.files.items()):
        place = "" if is_file else name
        with tree.keep_open(place):
            whole = sha256()
            for begin in range(0, size, _PIECE_BYTES):
                if parent is not None and os.getppid() != parent:
                    raise DeadlineExceeded("the training has ended")
                whole.update(tree.read(place, begin, min(_PIECE_BYTES, size - begin)))
            blocks = b"".join(tree.read(place, begin, _BLOCK_BYTES) for begin in _blocks(size))
        sampled = sha256(blocks).hexdigest()
        files[name] = {"bytes": size, "sha256": whole.hexdigest(), "sampled": sampled}
    after = _listing(path, is_file=is_file)
    if (before.files, before.modified) != (after.files, after.modified):
        raise Changed("it changed while its digests were computed")
    document = {"version": _VERSION, "time": to_iso(time.time()), "files": files}
    replace_file(manifest_path(path), json.dumps(document).encode("ascii") + b"\n", durable=True)
    return len(files), sum(before.files.values())


def check(contents: CheckpointFiles, manifest: bytes, report: Findings, *, whole: bool) -> None:
    """Compare the files with their manifest.

    Args:
        contents: of the checkpoint.
        manifest: content of the file.
        report: what else was found; a suspicion makes this read all files.
        whole: read all files, and not only the sampled blocks.
    """
    try:
        document = json.loads(manifest)
        promised: dict[str, Any] = dict(document["files"])
        written = from_iso(document["time"]) or 0.0
        sizes = {name: int(one["bytes"]) for name, one in promised.items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        report.remarks.append("its manifest of digests cannot be read")
        return
    missing = [name for name in promised if name not in contents.files]
    if missing and contents.listed_all:
        report.defects.append(
            f"{len(missing)} of {len(promised)} files missing that its digests name: {abbreviated(missing)}"
        )
    here = sorted(promised.keys() - set(missing))
    other = [name for name in here if contents.files[name] != sizes[name]]
    whole = whole or bool(report.suspicions)
    kind, was_read = "sha256" if whole else "sampled", contents.reads_are_cheap or whole
    try:
        for name in here if was_read else ():
            if contents.files[name] == sizes[name] and _digest(contents, name, whole=whole) != promised[name][kind]:
                other.append(name)
    except (OSError, DeadlineExceeded) as error:
        report.unread.append(f"{name} could not be compared with its digest: {error}")
        was_read = False
    if not other and not missing:
        if was_read:
            how = "was read" if whole else f"was compared at {_BLOCKS} places"
            report.proofs.insert(0, f"each of its {len(promised)} files has the digest of when it was saved, and {how}")
            report.content_is_proven = True
    elif other and len(other) == len(promised) and all(contents.modified.get(name, 0.0) > written for name in other):
        report.suspicions.append("its digests are of an earlier save: every file has changed since")
    elif other:
        report.defects.append(
            f"{len(other)} of {len(promised)} files are not what their digests say: {abbreviated(other)}"
        )


def _digest(contents: CheckpointFiles, name: str, *, whole: bool) -> str:
    from hashlib import sha256  # noqa: PLC0415  # as above

    size, digest = contents.files[name], sha256()
    with contents.keep_open(name):
        if whole:
            for begin in range(0, size, _PIECE_BYTES):
                digest.update(contents.read(name, begin, _PIECE_BYTES))
        else:
            digest.update(b"".join(contents.read(name, begin, _BLOCK_BYTES) for begin in _blocks(size)))
    return digest.hexdigest()


def _blocks(size: int) -> Iterator[int]:
    """Yield where the sampled blocks of a file begin; the first and the last are at its ends."""
    if size <= _BLOCKS * _BLOCK_BYTES:
        yield from range(0, size, _BLOCK_BYTES)
    else:
        yield from ((size - _BLOCK_BYTES) * number // (_BLOCKS - 1) for number in range(_BLOCKS))


def _listing(path: str, *, is_file: bool) -> Listing:
    if is_file:
        place = Path(path)
        status = place.stat()
        return Listing({place.name: status.st_size}, {place.name: status.st_mtime})
    listing = FolderTree(path).walk("", Deadline(_NO_LIMIT_SECONDS))
    if listing.errors:
        raise OSError(listing.errors[0])
    return listing


def main(argv: list[str]) -> int:
    """Write the manifest of the checkpoint `argv[1]` for the training with the pid `argv[0]`; print a line of JSON."""
    os.nice(_NICENESS)
    # A temporary file is removed on the way out.
    signal.signal(signal.SIGTERM, _exit)
    try:
        files, size = write_manifest(argv[1], parent=int(argv[0]))
    except (OSError, Changed, DeadlineExceeded) as error:
        print(json.dumps({"problem": str(error)}))
        return 1
    print(json.dumps({"files": files, "size_bytes": size}))
    return 0


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
