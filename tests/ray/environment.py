"""The real Ray, in Python environments of its own: it pins what this project does not."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from trainwarden.stack.binaries import default_folder

_REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
# Which of the versions that are supported, by $TRAINWARDEN_RAY.
_PINS = {"newest": "ray.txt", "oldest": "ray-oldest.txt"}
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


class RayUnavailable(Exception):
    """Ray cannot be had here; the message says why."""


def find_python(*, train: bool = False) -> Path:
    """The Python of an environment with Ray, made below the tools folder on first use. Raises RayUnavailable.

    With `train` it is another one above that, which has what Ray Train needs as well.
    """
    ray = _REQUIREMENTS / _PINS[os.environ.get("TRAINWARDEN_RAY") or "newest"]
    files = [ray, _REQUIREMENTS / "ray-train.txt"] if train else [ray]
    # Another Python and other pins are another environment: whoever runs from the old one is not disturbed.
    pins = hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]
    base = find_python() if train else None
    folder = default_folder() / "ray" / f"{_VERSION}-{pins}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes start together
        if not (folder / "ready").exists():
            _make(folder, files[-1], base)
    return folder / "bin" / "python"


def _make(folder: Path, requirements: Path, base: Path | None) -> None:
    """Make an environment; where there is a `base`, one that finds the packages of that one, too."""
    python = str(folder / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        except subprocess.TimeoutExpired:
            raise RayUnavailable("pip did not end within 280 s") from None
        if done.returncode:
            raise RayUnavailable((done.stderr.strip().splitlines() or ["no message"])[-1])
    packages = Path("lib", f"python{_VERSION}", "site-packages")
    if base is not None:
        (folder / packages / "base.pth").write_text(f"{base.parents[1] / packages}\n", encoding="utf-8")
    (folder / "ready").touch()
