"""The loop goes on while the disk fails or the clock jumps, and the record is right again afterwards."""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.small_disk import SmallDisk, small_disk
from tests.unit.library.looking import read_metadata, read_progress, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Script
from tests.waiting import wait_until
from trainwarden.record import store
from trainwarden.record.clock import from_iso
from trainwarden.record.folder import replace_file
from trainwarden.training import journal


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", "local:5:0")


def _events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines() if line]


@pytest.mark.process
def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_recorded(disk: SmallDisk) -> None:
    with trainwarden.run("r", dir=disk.path) as run:
        run.step(1)
        wait_until((run.folder / "progress.json").exists)
        disk.fill()
        errors = run.write_errors
        for step in range(2, 50):
            run.step(step)
            run.note("kept", step=step)
        wait_until(lambda: run.write_errors >= errors + 4)
        assert read_progress(run.folder).step < 49
        disk.free()
        wait_until(lambda: read_progress(run.folder).step == 49)
        wait_until(lambda: read_metadata(run.folder).write_errors)
    snapshot = read_snapshot(run.folder)
    assert (snapshot.state, snapshot.progress.steps_completed, snapshot.unreadable) == ("succeeded", 49, ())
    kept = [event["data"]["step"] for event in _events(run.folder) if event["event_type"] == "kept"]
    assert kept == list(range(2, 50))
    assert not [entry.name for entry in run.folder.iterdir() if entry.name.endswith(".tmp")]


@pytest.mark.process
def test_a_disk_that_stays_full_lets_the_run_end(disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    with trainwarden.run("r", dir=disk.path) as run:
        run.step(1)
        wait_until((run.folder / "progress.json").exists)
        disk.fill()
        run.step(2)
    assert read_snapshot(run.folder).unreadable == ()
    assert read_metadata(run.folder).status == "running"
    assert "could not be written" in caplog.text


def test_a_folder_that_becomes_a_file_is_written_again_once_it_is_a_folder(tmp_path: Path) -> None:
    with trainwarden.run("r", dir=tmp_path) as run:
        run.step(1)
        wait_until((run.folder / "progress.json").exists)
        away = 0
        while not run.folder.is_file():  # the writing thread may be making it anew meanwhile
            run.folder.rename(tmp_path / f"away-{(away := away + 1)}")
            with contextlib.suppress(IsADirectoryError):
                run.folder.write_text("in the way")
        run.step(2)
        run.note("kept")
        wait_until(lambda: run.write_errors >= 2)
        run.folder.unlink()
        wait_until(lambda: (said := read_progress(run.folder)) and said.step == 2)
    assert "kept" in [event["event_type"] for event in _events(run.folder)]
    assert read_snapshot(run.folder).state == "succeeded"


@pytest.mark.process
def test_a_folder_that_is_made_read_only_for_a_while_costs_nothing_that_was_recorded(script: Script) -> None:
    with tempfile.TemporaryDirectory() as runs:
        done = script.run(_READ_ONLY, RUNS=runs)
        assert done.returncode == 0, done.stderr
        assert "Permission denied" in done.stderr
        folder = Path(runs, "r")
        assert "kept" in [event["event_type"] for event in _events(folder)]
        assert (read_snapshot(folder).state, read_progress(folder).step) == ("succeeded", 2)


# Root may write everywhere, so it becomes somebody else.
_READ_ONLY = """
import datetime, json, os, time, traceback, trainwarden
from tests.waiting import wait_until
trainwarden.run  # loads, as the line before, what it needs while it may read all files
if os.geteuid() == 0:
    os.chown(os.environ["RUNS"], 65534, 65534)
    os.seteuid(65534)
with trainwarden.run("r", dir=os.environ["RUNS"]) as run:
    run.step(1)
    wait_until((run.folder / "progress.json").exists)
    wait_until((run.folder / "events.jsonl").exists)
    os.chmod(run.folder, 0o500)
    os.chmod(run.folder / "events.jsonl", 0o400)
    run.step(2)
    run.note("kept")
    wait_until(lambda: run.write_errors >= 4)
    os.chmod(run.folder, 0o700)
    os.chmod(run.folder / "events.jsonl", 0o600)
    wait_until(lambda: json.loads((run.folder / "progress.json").read_text())["step"] == 2)
"""


def test_a_disk_that_hangs_delays_no_step_and_bounds_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(*args: Any, **options: Any) -> None:
        hangs.set()
        goes_on.wait(DEADLINE_SECONDS)
        replace_file(*args, **options)

    monkeypatch.setattr(journal, "MAX_WAITING_BYTES", 20_000)
    with trainwarden.run("r", dir=tmp_path) as run:
        monkeypatch.setattr(store, "replace_file", hang)
        run.step(1)
        assert hangs.wait(DEADLINE_SECONDS)
        for step in range(2, 20_001):
            run.step(step)
            run.note("n", step=step)
        waiting = run._recorder._event_log._events
        assert waiting is not None
        assert waiting._waiting_bytes < 30_000
        goes_on.set()
        wait_until(lambda: (said := read_progress(run.folder)) and said.step == 20_000)
    events = _events(run.folder)
    dropped = sum(event["data"]["count"] for event in events if event["event_type"] == "lines_dropped")
    lost = 19_999 - sum(event["event_type"] == "n" for event in events)
    assert lost <= dropped <= lost + 1, "the progress was noted once meanwhile"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
@pytest.mark.slow
def test_a_clock_that_is_set_by_an_hour_stops_no_writing_and_bends_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time
    monkeypatch.setattr("trainwarden.training.writer.LIVENESS_SECONDS", 0.2)
    with trainwarden.run("r", dir=tmp_path) as run:
        loop = _Loop(run)
        wait_until(lambda: (said := read_progress(run.folder)) and said.tokens_per_second)
        before = read_progress(run.folder)
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        rates = loop.rates_until(lambda: read_progress(run.folder).step > before.step + 200)
        wait_until(lambda: abs(read_metadata(run.folder).last_update - real() - jump) < 60)
        wait_until(lambda: abs(read_progress(run.folder).last_updated - real() - jump) < 60)
        loop.stop()
    assert rates
    assert all(rate > before.tokens_per_second / 500 for rate in rates)
    assert read_progress(run.folder).step == loop.steps
    training = json.loads((run.folder / "summary.json").read_text())["training"]
    assert 0 < training["duration_seconds"] < DEADLINE_SECONDS
    assert from_iso(training["end_time"]) == pytest.approx(real() + jump, abs=60)


class _Loop:
    """A loop that makes a step about every five milliseconds, in a thread of its own."""

    def __init__(self, run: trainwarden.Run) -> None:
        self.steps = 0
        self._run = run
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def _go(self) -> None:
        while not self._stopped.wait(0.005):
            self._run.step(self.steps + 1, tokens=100)
            self.steps += 1

    def rates_until(self, condition: Callable[[], bool]) -> list[float]:
        rates: list[float | None] = []

        def noted() -> bool:
            rates.append(read_progress(self._run.folder).tokens_per_second)
            return condition()

        wait_until(noted)
        # None is no rate: there are not yet two reports by the same clock.
        return [rate for rate in rates if rate is not None]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
