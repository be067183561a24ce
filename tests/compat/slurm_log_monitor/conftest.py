"""Fixtures of the tests for users of the SLURM log monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.user import User

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> User:
    """A user with a folder of their own."""
    return User(tmp_path, capsys, caplog)
