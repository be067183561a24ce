"""A collector in this process, over a machine of the stand-in."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.devices.amd import PACKAGE, AmdMachine
from tests.devices.amd_watched import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.devices.amd_watched import Watch


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AmdMachine]:
    machine = AmdMachine(tmp_path, gpus=2)
    monkeypatch.setenv("FAKE_AMDSMI_SCRIPT", machine.environment()["FAKE_AMDSMI_SCRIPT"])
    monkeypatch.syspath_prepend(str(PACKAGE))
    sys.modules.pop("amdsmi", None)
    yield machine
    sys.modules.pop("amdsmi", None)
    for thread in threading.enumerate():
        if thread.name == "amdsmi":
            thread.join(5)


@pytest.fixture
def watch(machine: AmdMachine) -> Watch:
    return lambda **settings: Watched(machine, **settings)
