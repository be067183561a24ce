"""A disk that is soon full, and can be given room again."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SmallDisk:
    """A small file system where one may be mounted; else a limit on the size of every file of this process."""

    def __init__(self, path: Path, *, is_mounted: bool) -> None:
        self.path = path
        self.is_mounted = is_mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room for another byte."""
        if not self.is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))
            return
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass

    def free(self) -> None:
        """Give the room back."""
        if self.is_mounted:
            self._ballast.unlink(missing_ok=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@contextmanager
def small_disk(path: Path, kib: int = 64) -> Iterator[SmallDisk]:
    """A disk of so many KiB at `path`, gone at the end."""
    path.mkdir()
    arguments = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)]
    is_mounted = os.geteuid() == 0 and subprocess.run(arguments, check=False, capture_output=True).returncode == 0
    disk = SmallDisk(path, is_mounted=is_mounted)
    try:
        yield disk
    finally:
        disk.free()
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
