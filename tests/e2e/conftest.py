"""What the end-to-end tests share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Up
from trainwarden.stack.binaries import Tools


@pytest.fixture
def up(tmp_path: Path, tools: Tools) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str, run_id: str = "r1", **environment: str) -> Up:
        started.append(Up(tmp_path, *arguments, run_id=run_id, **environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()
            each.process.wait(60)
