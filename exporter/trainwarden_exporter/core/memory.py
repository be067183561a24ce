"""Limit what the upkeep of memory takes, and choose the process that ends where memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

_M_ARENA_MAX = -8
# New objects until cycles among them are looked for, some 50 times Python's own.
_NEW_OBJECTS = 40_000
OOM_SCORE = Path("/proc/self/oom_score_adj")
# In thousandths of the memory: more than the difference between the processes of one service.
PROTECTED = 500


def keep_one_arena() -> None:
    """Make all threads allocate from one arena: with one each, memory freed by one thread is not reused by another."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def look_for_cycles_seldom() -> None:
    """Look seldom for objects that refer to each other in a circle: a sample makes thousands of others, and no such."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def offer_to_oom_killer(file: Path = OOM_SCORE) -> None:
    """Let the kernel end this process before others of its service, where the service's memory runs out.

    Only what protects the service from the shortage of a whole machine is given up.
    """
    score = _oom_score(file)
    if score is not None and score < 0:
        _set_oom_score(file, min(0, score + PROTECTED))


def hide_from_oom_killer(file: Path = OOM_SCORE) -> None:
    """Take the protection that the parent gave up: a process that calls a driver must not be ended in a call.

    Without rights of its own a process may go no lower than the service manager set it.
    """
    score = _oom_score(file)
    if score is not None:
        _set_oom_score(file, max(-1000, score - PROTECTED))


def _oom_score(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def _set_oom_score(file: Path, score: int) -> None:
    with contextlib.suppress(OSError):
        file.write_text(str(score))


def release_free_memory() -> None:
    """Return free memory to the system; for after work whose peak was far above what stays in use."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
