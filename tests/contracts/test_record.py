"""The record is written as its samples say, and every reader accepts those of today and of the first version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.calling import call
from tests.contracts.compare import difference
from tests.contracts.record import MOMENT, sample_files, todays_files

# What each reader is to say of a run: state, step, loss.
EXPECTED: Mapping[str, Mapping[str, tuple[str, int, float | None]]] = {
    "first": {
        "running": ("RUNNING", 120, 2.5),
        "failed": ("FAILED", 120, 2.5),
        "succeeded": ("SUCCEEDED", 120, 2.5),
    },
    "today": {
        "failed": ("FAILED", 1, None),
        "shell": ("FAILED", 1, 0.5),
        "succeeded": ("SUCCEEDED", 2, 0.25),
    },
}
Seen = dict[str, tuple[str, float | None, float | None]]


def test_the_record_is_written_as_in_the_samples() -> None:
    written, found = ([*_lines(files)] for files in (sample_files("today"), todays_files()))
    assert not (changed := difference("record", written, found)), f"\n{changed}"


def _lines(files: Mapping[str, str]) -> Iterator[str]:
    for name, text in files.items():
        yield from (f"{name}: {line}" for line in text.splitlines())


@pytest.fixture(params=sorted(EXPECTED))
def version(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A version, whose samples are in the folder of the test, as if they had just been written."""
    now = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
    for name, text in sample_files(request.param).items():
        if name.partition("/")[0] in EXPECTED[request.param]:
            file = tmp_path / "runs" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(MOMENT, now).replace("2026-01-01T00:00:00", now[:19]), encoding="utf-8")
    return str(request.param)


def status(runs: Path) -> Seen:
    return dict(_seen(_printed(runs, "status", run.name)) for run in runs.iterdir())


def list_of_runs(runs: Path) -> Seen:
    found = json.loads(call("trainwarden", "runs", "--runs-dir", str(runs), "--json").output)
    return dict(map(_seen, found["runs"] if isinstance(found, dict) else found))


def top(runs: Path) -> Seen:
    return dict(map(_seen, _printed(runs, "top", "--once")["runs"]))


def monitor(runs: Path) -> Seen:
    found = _printed(runs, "monitor", "--once", "--state-file", str(runs.parent / "state.json"))
    return dict(map(_seen, found["runs"]))


def _printed(runs: Path, *words: str) -> Any:
    return json.loads(call("trainwarden", *words, "--runs-dir", str(runs), "--json").output)


def _seen(run: Mapping[str, Any]) -> tuple[str, tuple[str, float | None, float | None]]:
    return run["run_id"], (run["status"], run["step"], run["loss"])


def exporter(runs: Path) -> Seen:
    from trainwarden.record.thresholds import Thresholds
    from trainwarden_exporter.collectors.runs.collector import RunsCollector
    from trainwarden_exporter.core.shared_state import SharedState

    limits: dict[str, Any] = {"host": "host", "all_hosts": True, "limit": 2000, "defaults": Thresholds()}
    values: dict[tuple[str, str], float] = {}
    states: dict[str, str] = {}
    for family in RunsCollector(runs, SharedState(), **limits).collect():
        for sample in family.samples:
            if sample.name == "training_run_state" and sample.value == 1:
                states[sample.labels["run_id"]] = sample.labels["state"].upper()
            elif "run_id" in sample.labels:
                values[sample.name, sample.labels["run_id"]] = sample.value
    return {
        run: (state, values.get(("training_step", run)), values.get(("training_loss", run)))
        for run, state in states.items()
    }


@pytest.mark.parametrize("reader", [status, list_of_runs, top, monitor, exporter])
def test_every_reader_accepts_the_record(version: str, reader: Callable[[Path], Seen], tmp_path: Path) -> None:
    assert reader(tmp_path / "runs") == EXPECTED[version]
