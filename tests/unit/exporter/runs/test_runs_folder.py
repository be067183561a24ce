"""The runs folder, before anything is read of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.exporter.contexts import context
from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.runs import spec
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.flags import build_parser


def test_a_folder_that_cannot_even_be_looked_for_is_named(tmp_path: Path) -> None:
    """As one below a folder that this user may not enter, which root cannot be refused."""
    path = tmp_path / ("x" * 300)
    flags = vars(build_parser().parse_args([f"--collector.runs.path={path}"]))
    with pytest.raises(UsageError, match=re.escape(f"--collector.runs.path {path}: expected a folder that")):
        spec.create(context(spec.SPEC, Node("n", tmp_path, tmp_path, tmp_path), flags))


@cases(("mode", "is_warned"), [(0o777, True), (0o1777, False), (0o2775, False), (0o755, False)])
def test_a_folder_in_which_all_users_may_replace_each_others_records_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_warned: bool
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    runs.chmod(mode)
    flags = vars(build_parser().parse_args([f"--collector.runs.path={runs}"]))
    spec.create(context(spec.SPEC, Node("n", tmp_path, tmp_path, tmp_path), flags))
    warnings = [line for line in caplog.messages if "any user may replace and remove the records of others" in line]
    assert bool(warnings) == is_warned
