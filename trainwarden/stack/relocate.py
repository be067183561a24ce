"""Debian's Alertmanager reads its templates from a fixed place: an unpacked one is told to read them from its own tree.

The place is compiled into the program. In a copy it is overwritten by a path of the same length through a file
descriptor, which a small shell script opens before it becomes the program.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

_PLACE = b"/usr/share/prometheus/alertmanager"
_DESCRIPTOR = 9
_ELSEWHERE = f"/proc/self/fd/{_DESCRIPTOR}".encode().ljust(len(_PLACE), b"/")


def relocate(program: Path, root: Path) -> None:
    """Make `program`, unpacked below `root`, read from `root` instead of /."""
    data = program.read_bytes()
    shared = root / _PLACE.decode().lstrip("/")
    if _PLACE not in data or not shared.is_dir():
        return
    moved = program.with_name(f"{program.name}.relocated")
    moved.write_bytes(data.replace(_PLACE, _ELSEWHERE))
    _make_executable(moved)
    script = f'#!/bin/sh\nexec {_DESCRIPTOR}<{shlex.quote(str(shared))}\nexec {shlex.quote(str(moved))} "$@"\n'
    program.unlink()
    program.write_text(script, encoding="utf-8")
    _make_executable(program)


def _make_executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
