"""Old folders, of which there may be thousands, cost next to nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden_exporter.collectors.runs.discovery import ASLEEP_SECONDS

OLD = NOW - 30 * 86400.0
FOLDERS = 300


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often the system was asked of a run, by call."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            # Opened as a place alone a folder is not read.
            is_place = name == "open" and arguments[0] & os.O_PATH
            is_old = isinstance(path, (str, bytes, os.PathLike)) and "old-" in os.fsdecode(path)
            counts["place" if is_place else name] += is_old
            return real(path, *arguments, **named)

        monkeypatch.setattr(os, name, call)

    for name in ("open", "stat", "lstat", "scandir", "listdir"):
        counted(name)
    yield counts


def test_old_folders_are_never_opened_and_seldom_looked_at(runs: RunsTree, calls: Counter[str]) -> None:
    for number in range(FOLDERS):
        runs.write(f"old-{number}", "metadata.json", '{"status": "running"}', modified=OLD)
        runs.write(f"old-{number}", "progress.json", '{"step": 1}', modified=OLD)
    runs.metadata("live")
    calls.clear()
    assert runs.value("trainwarden_runs", outcome="expired") == FOLDERS
    assert calls["open"] == calls["listdir"] == calls["scandir"] == 0
    assert calls["place"] + calls["stat"] + calls["lstat"] <= 2 * FOLDERS
    calls.clear()
    runs.now += ASLEEP_SECONDS - 1
    assert runs.state("live") == "running"
    assert not +calls
    runs.now += 2
    assert runs.value("trainwarden_runs", outcome="expired") == FOLDERS
    assert calls["open"] == 0


def test_an_old_folder_that_is_written_to_is_reported_again(runs: RunsTree) -> None:
    runs.write("old", "metadata.json", '{"status": "running"}', modified=OLD)
    assert runs.state("old") is None
    runs.metadata("old")
    runs.now += ASLEEP_SECONDS + 1
    assert runs.state("old") == "running"


def test_a_file_that_is_written_in_place_wakes_its_folder(runs: RunsTree) -> None:
    runs.metadata("old", last_update="2026-12-15T00:00:00Z")
    file = runs.path / "old" / "metadata.json"
    for path in (file, runs.path / "old"):
        os.utime(path, (OLD, OLD))
    assert runs.state("old") is None
    with file.open("r+") as open_file:
        open_file.write(file.read_text().replace("2026-12-15T00:00:00Z", "2027-01-15T08:00:00Z"))
    os.utime(file, (NOW, NOW))
    os.utime(runs.path / "old", (OLD, OLD))
    runs.now += ASLEEP_SECONDS + 1
    assert runs.state("old") == "running"
