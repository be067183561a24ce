"""SIGUSR1 and the release file, as a script that resets devices uses them."""

from __future__ import annotations

import contextlib
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.exporter.running import Started
from tests.waiting import wait_until

RELEASED = "trainwarden_exporter_released"
# The command, with both signals on their way when the first of its own modules but the entry point is looked for.
SIGNALLED = """
import os, runpy, signal, sys

class Signals:
    def find_spec(self, name, *_):
        if name == "trainwarden_exporter.cli":
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGUSR1)

sys.meta_path.insert(0, Signals())
runpy.run_module("trainwarden_exporter", run_name="__main__", alter_sys=True)
"""


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


def test_a_signal_that_comes_while_the_exporter_starts_is_acted_upon_once_it_runs(
    start_exporter: Callable[..., Started], flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Started, "COMMAND", (sys.executable, "-c", SIGNALLED))
    started = start_exporter(*flags)
    wait_until(lambda: started.value(RELEASED) == 1)
    assert "SigBlk:\t0000000000000000\n" in Path(f"/proc/{started.process.pid}/status").read_text()
    assert "configuration read again" in started.end()


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
