"""Builds the stand-ins for drivers' libraries, with whatever compiler there is."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compiler() -> list[str] | None:
    """Return the command of a C compiler; None if there is none."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def build_library(source: Path, library: Path, *definitions: str) -> Path:
    """Build a shared library; skips the test where there is no compiler."""
    command = compiler()
    if command is None:
        pytest.skip("no C compiler is here")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [*command, *flags, *(f"-D{each}" for each in definitions), "-o", str(library), str(source)],
        check=True,
        capture_output=True,
        text=True,
    )
    return library
