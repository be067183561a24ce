"""The right to read any file (CAP_DAC_READ_SEARCH), in use only while something is read whose owner is checked.

Held all the time it would make every path in a record a path that a service reads for its writer, and programs that it
starts would have it too. Capabilities are those of a thread: while one has raised this one, the others have not.
"""

from __future__ import annotations

import contextlib
import struct
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_NUMBER = 2
_READ_SEARCH = 1 << _NUMBER
_OVERRIDE, _SET_IDS = 1 << 1, 1 << 6 | 1 << 7
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 47, 3
# `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
_HEADER = struct.pack("=Ii", 0x20080522, 0)
_WORDS = struct.Struct("=6I")


def lower_read_search() -> None:
    """Give up the right in this thread and what it starts, until it is raised; to be called before any other thread.

    Root with all its rights keeps it: what it reads is checked against owners.
    """
    may_raise.cache_clear()
    if may_raise():
        import ctypes  # noqa: PLC0415  # where a process has capabilities

        # Programs that are started would get it again.
        ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, _NUMBER, 0, 0)
        _set(effective=False)


def reading_any() -> AbstractContextManager[None]:
    """Return a context with the right in this thread, if the process was started with it; else one without effect."""
    return _raised() if may_raise() else _WITHOUT_EFFECT


_WITHOUT_EFFECT = contextlib.nullcontext()


@contextlib.contextmanager
def _raised() -> Iterator[None]:
    _set(effective=True)
    try:
        yield
    finally:
        _set(effective=False)


def may_become_others() -> bool:
    """Return whether this process may become another user, as root may outside of most containers."""
    words = _get()
    return words is not None and words[0] & _SET_IDS == _SET_IDS


@cache
def may_raise() -> bool:
    """Return whether the right can be raised."""
    words = _get()
    # With the right to write any file it makes no difference.
    return words is not None and words[1] & (_READ_SEARCH | _OVERRIDE) == _READ_SEARCH


def _get() -> tuple[int, ...] | None:
    """Return effective, permitted and inheritable of the low capabilities, then of the high ones."""
    import ctypes  # noqa: PLC0415  # where a process has capabilities

    data = ctypes.create_string_buffer(_WORDS.size)
    try:
        failed = ctypes.CDLL(None).capget(ctypes.c_char_p(_HEADER), data)
    except (OSError, AttributeError):
        return None
    return None if failed else _WORDS.unpack(data.raw)


def _set(*, effective: bool) -> None:
    import ctypes  # noqa: PLC0415  # where a process has capabilities

    words = _get()
    if words is None or not words[1] & _READ_SEARCH:
        return
    low = words[0] | _READ_SEARCH if effective else words[0] & ~_READ_SEARCH
    data = ctypes.create_string_buffer(_WORDS.pack(low, *words[1:]), _WORDS.size)
    if ctypes.CDLL(None, use_errno=True).capset(ctypes.c_char_p(_HEADER), data):
        raise OSError(ctypes.get_errno(), "cannot change the capabilities of this thread")
