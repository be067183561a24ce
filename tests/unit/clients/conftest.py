"""A scripted server for the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.clients.scripted import Scripted


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()
