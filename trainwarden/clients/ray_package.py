"""A folder as a package of Ray: a zip file, the same bytes for the same files.

It needs nothing but the standard library and also runs as a program, in a pod where Trainwarden is not installed:
`python3 -c SOURCE FOLDER [PATTERN ...]` writes the package to standard output.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

# Ray's own limit for what it keeps.
MAX_PACKAGE_BYTES = 500 * 2**20
# What the names of packages that are uploaded from here begin with.
UPLOADED = "trainwarden-"
_SKIPPED = (".git", "__pycache__")
_EPOCH = (1980, 1, 1, 0, 0, 0)


class CannotPack(Exception):
    """A folder cannot be packed; the message names it."""


def pack(folder: Path, excluded: tuple[str, ...] = ()) -> bytes:
    """Return a folder as a package; a file as it is. Links and what is excluded are left out.

    Args:
        folder: whose content is to be the working directory, or a zip file.
        excluded: patterns of shells for paths within it, such as `data/*`.

    Raises:
        CannotPack: it cannot be read, is empty or too large.
    """
    try:
        content = folder.read_bytes() if folder.is_file() else _packed(folder, excluded)
    except OSError as error:
        raise CannotPack(f"{error.filename or folder}: {error.strerror}") from None
    if not content:
        raise CannotPack(f"{folder}: expected a folder with files")
    return content


def package_name(content: bytes) -> str:
    """Return the name of a package, which tells it from those with other content."""
    return f"{UPLOADED}{digest(content)}.zip"


def digest(content: bytes) -> str:
    """Return what tells one package from another, for its name."""
    return hashlib.sha256(content).hexdigest()[:32]


def _packed(folder: Path, excluded: tuple[str, ...]) -> bytes:
    """Return the zip file; empty where there is no file to pack."""
    found = io.BytesIO()
    count = total = 0
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as file:
        for root, folders, names in os.walk(folder):
            at = Path(root).relative_to(folder)
            folders[:] = sorted(
                each for each in folders if each not in _SKIPPED and not _matches((at / each).as_posix(), excluded)
            )
            for name in sorted(names):
                path, inner = Path(root) / name, (at / name).as_posix()
                if path.is_symlink() or not path.is_file() or _matches(inner, excluded):
                    continue
                total += path.stat().st_size
                if total > MAX_PACKAGE_BYTES:
                    raise CannotPack(f"{folder}: more than {MAX_PACKAGE_BYTES} bytes, the most that Ray keeps")
                entry = zipfile.ZipInfo(inner, _EPOCH)
                entry.external_attr = (path.stat().st_mode & 0o777) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(entry, path.read_bytes())
                count += 1
    return found.getvalue() if count else b""


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def main() -> int:
    """Write the package that the command line names to standard output."""
    try:
        sys.stdout.buffer.write(pack(Path(sys.argv[1]), tuple(sys.argv[2:])))
    except CannotPack as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
