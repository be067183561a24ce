"""SIGUSR1 and the release file, as a script that resets devices uses them."""

from __future__ import annotations

import contextlib
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.exporter.running import Started
from tests.waiting import wait_until

RELEASED = "trainwarden_exporter_released"


@pytest.fixture
def flags(runs: Path) -> list[str]:
    return ["--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={runs}"]


def ready(started: Started) -> bool:
    try:
        with urllib.request.urlopen(f"http://{started.address}/-/ready", timeout=30) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError:  # the first sample has not been taken yet
        return False


def test_sigusr1_releases_and_a_second_one_takes_again(
    start_exporter: Callable[..., Started], flags: list[str]
) -> None:
    started = start_exporter(*flags)
    assert started.value(RELEASED) == 0
    started.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: started.value(RELEASED) == 1)
    wait_until(lambda: ready(started))
    started.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: started.value(RELEASED) == 0)
    log = started.end()
    assert "releasing all devices for 300 s" in log
    assert log.index("all devices are released") < log.index("the devices are taken again")


def test_devices_are_taken_again_by_themselves(start_exporter: Callable[..., Started], flags: list[str]) -> None:
    started = start_exporter(*flags, "--release.seconds=3s")
    started.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: started.value(RELEASED) == 1)
    wait_until(lambda: started.value(RELEASED) == 0)


def test_the_file_releases_while_it_exists_and_sighup_may_name_another(
    start_exporter: Callable[..., Started], flags: list[str], tmp_path: Path
) -> None:
    first, second, configuration = tmp_path / "first", tmp_path / "second", tmp_path / "exporter.yml"
    configuration.write_text(f"release.file: {first}\n")
    started = start_exporter(*flags, f"--config.file={configuration}")
    first.touch()
    wait_until(lambda: started.value(RELEASED) == 1)
    configuration.write_text(f"release.file: {second}\n")
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: started.value(RELEASED) == 0)
    second.touch()
    wait_until(lambda: started.value(RELEASED) == 1)


def test_no_signal_is_kept_from_what_collectors_start(start_exporter: Callable[..., Started], flags: list[str]) -> None:
    started = start_exporter(*flags)

    def blocked() -> list[str]:
        lines: list[str] = []
        for task in Path(f"/proc/{started.process.pid}/task").glob("*/status"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
                lines += [line for line in task.read_text().splitlines() if line.startswith("SigBlk")]
        return [line for line in lines if int(line.split()[1], 16)]

    # Who starts a thread blocks all of them for a moment.
    wait_until(lambda: not blocked())
