"""One Alertmanager for all tests of a session: each has clusters of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alertmanager.running import WARNINGS_WAIT, Alertmanager
from tests.alertmanager.running import alertmanager as running_alertmanager
from trainwarden.stack.binaries import Tools


@pytest.fixture(scope="session")
def alertmanager(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """The shipped configuration in a real Alertmanager; only warnings wait no longer than the others."""
    folder = tmp_path_factory.mktemp("alertmanager")
    with running_alertmanager(tools, folder, edits={WARNINGS_WAIT: ""}) as running:
        yield running
