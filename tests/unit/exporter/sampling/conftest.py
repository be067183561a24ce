"""Members in a child process of their own, with deadlines that a test can wait for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.core.exposition import render
from trainwarden_exporter.sampling import child_process, subprocess_collector
from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector

ROOT = Path(__file__).resolve().parents[4]
TOY = "tests.unit.exporter.sampling.toy"


def page(member: SubprocessCollector) -> str:
    return render(member.ready()).decode()


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is started again at once; how long it may be silent is left alone, for a busy machine may be slow."""
    monkeypatch.setattr(subprocess_collector, "RESTART_SECONDS", 0.01)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a child that will not end."""
    monkeypatch.setattr(child_process, "END_SECONDS", 0.5)
    monkeypatch.setattr(child_process, "TERMINATE_SECONDS", 0.5)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., SubprocessCollector]]:
    """Makes a member that runs the toy collector, with time for each sample; it is stopped after the test."""
    made: list[SubprocessCollector] = []

    def member(**settings: Any) -> SubprocessCollector:
        timeout = settings.setdefault("timeout", 20.0)
        made.append(SubprocessCollector(ChildSpec("nvidia", TOY, 0.1, timeout, {"folder": str(tmp_path), **settings})))
        return made[-1]

    yield member
    for each in made:
        each.stop()


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Lets the child be a few lines of Python of the test's own; it counts as started after those `before`."""

    def script(code: str, before: str = "") -> None:
        counted = f"{before}\nopen({str(tmp_path / 'starts')!r}, 'a').write('one\\n')\n{code}"
        monkeypatch.setattr(child_process, "COMMAND", (sys.executable, "-c", counted))

    return script
