"""What SIGHUP does where even the code is wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainwarden_exporter.configuration.reload import Reload
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.metric import Families


def test_a_fault_of_a_collector_is_logged_and_ends_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("log.level: info\n")
    argv = [f"--config.file={file}"]

    def reconfigure(*_: object) -> str:
        raise PermissionError("somewhere")

    collection = SimpleNamespace(runners=["held"], extra=[])
    collectors, release = SimpleNamespace(runners=["held"], reconfigure=reconfigure), SimpleNamespace()
    Reload(argv, read_flags(argv), cast("Any", collectors), cast("Any", collection), cast("Any", release)).read_again()
    assert "what held before still holds" in caplog.text
    families = Families()
    collection.extra[0](families)
    shown = {family.name: family.samples[0].value for family in families.collected()}
    assert shown["trainwarden_config_last_reload_successful"] == 0
