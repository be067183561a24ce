"""Unit tests stay in one process; those that start others carry the mark `process`: `make test-fast` skips them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainwarden.signals.literals import Literals

# A busy machine must fail no test: none asserts anything about speed.
settings.register_profile("trainwarden", deadline=None)
settings.load_profile("trainwarden")

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_started: list[str] = []


# The defaults stay when the interpreter ends and takes the names of the module away.
def _note_start(event: str, arguments: tuple[object, ...], starts: frozenset[str] = _STARTS) -> None:
    if event in starts:
        _started.append(f"{event}{arguments[:2]}")


sys.addaudithook(_note_start)  # cannot be removed; it costs about 0.1 µs an event


@pytest.fixture(autouse=True)
def no_process_without_the_mark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process without the mark, whichever tests were asked for."""
    _started.clear()
    yield
    if request.node.get_closest_marker("process") is None:
        assert _started == [], "the test starts a process: mark it `process`"


_COMPILED: dict[tuple[bytes, ...], Literals] = {}


@pytest.fixture(scope="module")
def texts_compiled_once() -> Iterator[None]:
    """Compile the texts of a pack, which takes a quarter of a second, once for the readers that one thread makes."""
    from trainwarden.signals.literals import literals

    def compiled(texts: Sequence[bytes]) -> Literals:
        if threading.current_thread() is not threading.main_thread():
            return literals(texts)  # what is compiled is for one thread at a time
        key = tuple(texts)
        if key not in _COMPILED:
            _COMPILED[key] = literals(texts)
        return _COMPILED[key]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("trainwarden.signals.search.literals", compiled)
        yield
