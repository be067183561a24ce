"""The call of a driver or of the system that each thread is in, so that one that never returns can be named."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_calls: dict[int, str] = {}


@contextlib.contextmanager
def calling(name: str) -> Iterator[None]:
    """Record that this thread is in the call `name` until the block is left."""
    thread = threading.get_ident()
    before = _calls.get(thread, "")
    _calls[thread] = name
    try:
        yield
    finally:
        _calls[thread] = before


def enter(name: str) -> None:
    """Record that this thread is in the call `name` until the next record; where a block would cost too much."""
    _calls[threading.get_ident()] = name


def current(thread: int | None) -> str:
    """Return the call that a thread is in; empty where none is recorded."""
    return _calls.get(thread, "") if thread is not None else ""


def leave() -> None:
    """Record that this thread is in no call."""
    _calls.pop(threading.get_ident(), None)
