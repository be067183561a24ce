"""What the C library keeps of memory that was freed. Where it is not GNU's, nothing is done."""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8


def keep_one_arena() -> None:
    """Have all threads allocate from one pool: with one each, what is freed in one is of no use to another."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Give the system what is free now: after work that took much more than what is left of it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
