"""Unit tests stay in one process; those that start others carry the mark `process`: `make test-fast` skips them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A busy machine must fail no test: none asserts anything about speed.
settings.register_profile("trainwarden", deadline=None)
settings.load_profile("trainwarden")

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_started: list[str] = []


def _note_start(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        _started.append(f"{event}{arguments[:2]}")


sys.addaudithook(_note_start)  # cannot be removed; it costs about 0.1 µs an event


@pytest.fixture(autouse=True)
def no_process_without_the_mark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process where only those without the mark were asked for."""
    _started.clear()
    yield
    if "not process" in request.config.option.markexpr:
        assert _started == [], "the test starts a process: mark it `process`"
