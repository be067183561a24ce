"""What SIGHUP applies, and what it leaves as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.collector_set import CollectorSet
from trainwarden_exporter.configuration.reload import Reload
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.release import Release
from trainwarden_exporter.sampling.collection import Collection


class Running:
    """An exporter's parts, created from a file and not started."""

    def __init__(self, file: Path) -> None:
        argv = [f"--config.file={file}"]
        flags = read_flags(argv)
        self.collectors = CollectorSet(Node("n"), flags)
        self.collection = Collection(self.collectors.runners)
        self.release = Release(self.collection, flags["release.seconds"], flags["release.file"])
        self.reload = Reload(argv, flags, self.collectors.shared.expected, self.collection, self.release)

    @property
    def is_current(self) -> float:
        families = Families()
        self.collection.extra[0](families)
        shown = {family.name: family.samples[0].value for family in families.collected()}
        return shown["trainwarden_config_last_reload_successful"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    path.write_text(f"collector: {{disable-defaults: true, runs: {{enabled: true, path: {tmp_path}}}}}\n")
    return path


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def test_what_needs_no_collector_anew_is_applied(file: Path, tmp_path: Path) -> None:
    running = Running(file)
    file.write_text(
        f"{file.read_text()}log.level: warning\nrelease: {{seconds: 1h, file: {tmp_path}/there}}\nexpect.run: [r1]\n"
    )
    running.reload.read_again()
    assert logging.getLogger().level == logging.WARNING
    assert (running.release.seconds, running.release.file) == (3600, tmp_path / "there")
    assert set(running.collectors.shared.expected.runs()) == {"r1"}
    assert running.is_current == 1


def test_what_takes_a_restart_is_named_until_the_file_is_as_it_was(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(file)
    before = file.read_text()
    runners = list(running.collection.runners)
    for _ in range(2):
        file.write_text(f"{before}collector.clock: true\nweb.max-requests: 3\nrelease.seconds: 2m\n")
        running.reload.read_again()
        assert running.is_current == 0
        assert caplog.messages[-1].endswith("these take a restart: --collector.clock, --web.max-requests")
    assert running.release.seconds == 120
    file.write_text(before)
    running.reload.read_again()
    assert running.is_current == 1
    assert running.collection.runners == runners


@pytest.mark.parametrize(
    "wrong",
    ["collector: {runs: [}", "collector.rums: true\n", "collector.disable-defaults: true\n", "path.sysfs: /no\n"],
)
def test_a_wrong_file_changes_nothing(file: Path, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(file)
    file.write_text(f"{wrong}\nrelease.seconds: 1h\n")
    running.reload.read_again()
    assert running.is_current == 0
    assert running.release.seconds == 300
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.endswith("; what held before still holds")
