"""Limit the freed memory that GNU's C library keeps; with another library, do nothing."""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8


def keep_one_arena() -> None:
    """Make all threads allocate from one arena: with one each, memory freed by one thread is not reused by another."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def release_free_memory() -> None:
    """Return free memory to the system; for after work whose peak was far above what stays in use."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
