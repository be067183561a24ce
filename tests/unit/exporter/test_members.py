"""Which collectors run, and on which node."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.members import node_of


def test_a_file_system_that_cannot_even_be_looked_for_is_named(tmp_path: Path) -> None:
    """As one below a folder that this user may not enter, which root cannot be refused."""
    flags = vars(build_parser().parse_args([f"--path.sysfs={tmp_path / ('x' * 300)}"]))
    with pytest.raises(UsageError, match=r"--path\.sysfs .*: expected a folder"):
        node_of(flags)
