"""One Alertmanager for all tests of a file: each speaks of runs of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alertmanager.running import Alertmanager
from tests.alertmanager.running import alertmanager as running_alertmanager
from trainwarden.stack.binaries import Tools


@pytest.fixture(scope="module")
def alertmanager(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """The shipped configuration in a real Alertmanager."""
    with running_alertmanager(tools, tmp_path_factory.mktemp("alertmanager")) as running:
        yield running
