"""`trainwarden top` and `status` as a person watches them: kept up to date, in a window that changes, until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal, terminal
from tests.unit.runs.records import foreign_run, write
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.tools
RUNNING, FAILED = "llama-sft-7", "mistral-20250804-171621"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run that trains and one that has failed."""
    for name in (RUNNING, FAILED):
        beat(foreign_run(tmp_path / "runs", run_id=name), 1500)
    write(tmp_path / "runs" / FAILED / "_error", message="CUDA out of memory", time=to_iso(time.time()))
    return tmp_path / "runs"


def beat(folder: Path, step: int) -> None:
    now = to_iso(time.time())
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    write(folder / "metadata.json", **{**metadata, "last_update": now})
    write(folder / "progress.json", step=step, total_steps=5000, loss=2.134, last_updated=now)


@pytest.fixture
def window(tmp_path: Path, runs: Path) -> Iterator[Terminal]:
    with terminal(tmp_path, {"TRAINWARDEN_RUNS_DIR": str(runs), "HOME": str(tmp_path)}) as opened:
        opened.type("echo", "what was here before")
        yield opened


def shows(window: Terminal, *texts: str) -> str:
    """Wait until all of them are on the screen, and return it."""

    def found() -> str:
        screen = window.screen()
        return screen if all(text in screen for text in texts) else ""

    return wait_until(found, lambda: f"{texts} in\n{window.screen()}")


def command(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "trainwarden", *words)


def test_top_keeps_its_table_up_to_date_and_gives_the_screen_back(window: Terminal, runs: Path) -> None:
    window.type(*command("top", "--interval", "0.2"))
    screen = shows(window, "RUN", RUNNING, "1500/5000", "2 runs, 1 need a person")
    assert screen.index(FAILED) < screen.index(RUNNING), "what needs a person comes first"
    assert "what was here before" not in screen
    beat(runs / RUNNING, 1600)
    shows(window, "1600/5000")
    window.interrupt()
    shows(window, "what was here before", "ready>")
    assert window.status() == 130
    assert "1600/5000" not in window.screen()


@pytest.mark.parametrize("exported", [False, True])
def test_top_fits_a_window_that_becomes_narrow(window: Terminal, exported: bool) -> None:
    # The variables of the size that a window had are exported in many shells, and by what GNU readline has touched.
    window.type("export" if exported else "unset", "COLUMNS", "LINES")
    window.type(*command("top", "--interval", "0.2"))
    shows(window, RUNNING, "1500/5000")
    window.resize(60, 20)
    screen = shows(window, "FAILED", "RUNNING", "1500/5000", "Error: CUDA")
    names = "".join(line.split(" ")[0] for line in screen.splitlines()[3:])
    assert RUNNING in names and FAILED in names, screen
    window.interrupt()
    assert window.status() == 130


def test_status_is_printed_again_until_ctrl_c(window: Terminal, runs: Path) -> None:
    window.type(*command("status", RUNNING, "--interval", "0.2"))
    shows(window, f"{RUNNING}  RUNNING", "1500/5000, 30.0 %")
    beat(runs / RUNNING, 2000)
    screen = shows(window, "2000/5000, 40.0 %")
    assert screen.count("Heartbeats") == 1, "the look before is wiped away"
    window.resize(60, 20)
    beat(runs / RUNNING, 2500)
    shows(window, f"{RUNNING}  RUNNING", "2500/5000, 50.0 %")
    window.interrupt()
    shows(window, "ready>")
    assert "Traceback" not in window.screen()
    assert window.status() == 130


def test_status_of_a_run_that_ends_ends_with_what_became_of_it(window: Terminal, runs: Path) -> None:
    window.type(*command("status", RUNNING, "--interval", "0.2"))
    shows(window, "1500/5000")
    (runs / RUNNING / "_complete").touch()
    shows(window, f"{RUNNING}  SUCCEEDED", "ready>")
    assert window.status() == 0
    window.type(*command("status", FAILED))
    shows(window, f"{FAILED}  FAILED", "CUDA out of memory")
    assert window.status() == 1
