"""Events and errors can be read line by line, while a run lasts and afterwards."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.processes import Script
from tests.waiting import wait_until
from trainwarden.record.lines import MAX_LINE
from trainwarden.training import journal

Starter = Callable[..., trainwarden.Run]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "r"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _events(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(line["event_type"], line["data"]) for line in _lines(folder / "events.jsonl")]


def test_the_events_of_a_run_are_in_its_journal(attempt: Starter, folder: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "step-2.pt"
    checkpoint.write_bytes(b"12345")
    with attempt(total_steps=2, model="m", method="sft") as run:
        run.step(1)
        wait_until(lambda: any(name == "phase_changed" for name, _ in _events(folder)))
        run.epoch(3)
        run.note("data_shuffled", seed=7)
        run.step(2, loss=0.5)
        run.checkpoint_saved(checkpoint)
    noted = [data for name, data in _events(folder) if name == "progress_noted"]
    assert noted[0] == {"step": 1}
    assert noted[-1] == {"step": 2, "loss": 0.5}
    events = [(name, data) for name, data in _events(folder) if name != "progress_noted"]
    assert [name for name, _ in events] == [
        "training_started",
        "phase_changed",
        "epoch_started",
        "data_shuffled",
        "checkpoint_saved",
        "training_completed",
    ]
    said = dict(events)
    assert said["training_started"].items() >= {"attempt": 0, "total_steps": 2, "model": "m", "method": "sft"}.items()
    assert said["phase_changed"].items() >= {"before": "init", "phase": "train"}.items()
    assert (said["epoch_started"], said["data_shuffled"]) == ({"epoch": 3}, {"seed": 7})
    assert said["checkpoint_saved"] == {"path": str(checkpoint), "step": 2, "size_bytes": 5}
    assert said["training_completed"].items() >= {"status": "completed", "steps_completed": 2}.items()


def test_every_line_shows_its_time_as_the_whole_record_does(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.note("n")
    for line in _lines(folder / "events.jsonl"):
        assert set(line) == {"timestamp", "event_type", "data"}
        assert len(line["timestamp"]) == len("2026-01-01T00:00:00.000000Z")
        assert line["timestamp"].endswith("Z")


def test_a_caught_error_is_in_both_journals_and_ends_nothing(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        try:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except RuntimeError as error:
            run.error(error, batch=7)
        run.step(1)
    (line,) = _lines(folder / "errors.jsonl")
    assert (line["exception_type"], line["category"], line["failure"]) == ("RuntimeError", "memory", "cuda_oom")
    assert (line["rank"], line["attempt"], line["attempt_key"]) == (0, 0, "local:5:0")
    assert line["context"] == {"batch": 7}
    assert "Traceback" in line["traceback"]
    assert line["script"] == "train.py"
    (event,) = [data for name, data in _events(folder) if name == "error"]
    assert event["error_message"] == line["error_message"]
    assert "traceback" not in event
    assert (folder / "_complete").exists()


def test_the_error_that_ends_a_run_is_the_last_of_its_journal(attempt: Starter, folder: Path) -> None:
    with pytest.raises(SystemExit), attempt() as run:
        run.error(ValueError("first"))
        raise SystemExit(93)
    run.end_before_next()
    first, last = _lines(folder / "errors.jsonl")
    assert (first["error_message"], last["exception_type"]) == ("first", "SystemExit")
    assert (last["failure"], last["context"]) == ("launcher_stop", {"exit_code": 93})
    assert _events(folder)[-1][1]["status"] == "failed"


def test_other_ranks_keep_their_errors_beside_their_heartbeat(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(ValueError, match="mine"), attempt() as run:
        run.note("not for this rank")
        raise ValueError("mine")
    (line,) = _lines(folder / "ranks" / "3.errors.jsonl")
    assert (line["rank"], line["error_message"], line["attempt_key"]) == (3, "mine", "local:5:0")
    assert not (folder / "events.jsonl").exists()
    assert not (folder / "errors.jsonl").exists()


@pytest.mark.process
def test_a_run_that_is_cancelled_shows_it_in_its_events_and_has_no_error(script: Script) -> None:
    done = script.run("""
        import os, signal, trainwarden
        with trainwarden.run("r") as run:
            run.step(1)
            os.kill(os.getpid(), signal.SIGTERM)
    """)
    assert done.returncode == -signal.SIGTERM
    name, data = _events(script.folder)[-1]
    assert (name, data["status"], data["reason"]) == ("training_completed", "cancelled", "SIGTERM")
    assert not (script.folder / "errors.jsonl").exists()


def test_a_new_attempt_goes_on_in_the_same_journal(attempt: Starter, folder: Path) -> None:
    for generation in (0, 1):
        with attempt(generation):
            pass
    attempts = [data["attempt"] for name, data in _events(folder) if name == "training_started"]
    assert attempts == [0, 1]


def test_an_enormous_error_leaves_a_line_that_can_be_read(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.error(RuntimeError("\U0001f525" * 10**6), everything=["x" * 1000] * 10_000)
    (line,) = (folder / "errors.jsonl").read_bytes().splitlines(keepends=True)
    assert len(line) <= MAX_LINE
    assert json.loads(line)["error_message"].startswith("\U0001f525")


def test_a_loop_that_notes_without_end_costs_bounded_memory_and_the_journal_states_what_is_missing(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING_BYTES", 20_000)
    with attempt() as run:
        for number in range(50_000):
            run.note("n", number=number, text="x" * 100)
        wait_until(lambda: any(name == "lines_dropped" for name, _ in _events(folder)))
    events = _events(folder)
    kept = [data["number"] for name, data in events if name == "n"]
    assert kept == sorted(set(kept))
    dropped = sum(data["count"] for name, data in events if name == "lines_dropped")
    assert len(kept) + dropped == 50_000
    assert json.loads((folder / "metadata.json").read_text())["lines_dropped"] == dropped


def test_the_last_lines_find_room_however_many_wait(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING_BYTES", 0)
    with pytest.raises(ValueError, match="the end"), attempt() as run:
        run.note("no room")
        raise ValueError("the end")
    assert [name for name, _ in _events(folder)] == ["training_started", "error", "training_completed", "lines_dropped"]
    assert [line["error_message"] for line in _lines(folder / "errors.jsonl")] == ["the end"]


@pytest.mark.process
def test_a_signal_handler_may_note_in_the_middle_of_a_note(script: Script) -> None:
    done = script.run("""
        import signal, trainwarden
        with trainwarden.run("r") as run:
            def handler(number, frame):
                run.note("handled")
                run.error(ValueError("handled"))
                signal.setitimer(signal.ITIMER_REAL, 0.001)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            for number in range(3000):
                run.note("n", number=number)
            signal.setitimer(signal.ITIMER_REAL, 0)
    """)
    assert done.returncode == 0, done.stderr
    events = _events(script.folder)
    assert [data["number"] for name, data in events if name == "n"] == list(range(3000))
    handled = [name for name, _ in events if name == "handled"]
    assert handled
    assert len(_lines(script.folder / "errors.jsonl")) == len(handled)
