"""`epoch`, `error` and `note`: reports beside the steps."""

import json
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.looking import read_progress, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Starter
from tests.waiting import wait_until


def _lines(path: Path, event: str | None = None) -> list[Any]:
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if event is None or line["event_type"] == event]


def test_an_epoch_is_an_event_and_stays_in_the_progress_until_the_next(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.epoch(1)
        run.step(10)
        trainwarden.epoch(2)
        run.step(20)
        wait_until(lambda: (said := read_progress(folder)) and said.epoch == 2)
        run.step(21, epoch=2.5, accuracy=0.5)
    said = read_progress(folder)
    assert (said.epoch, said.metrics, said.step) == (2.5, {"accuracy": 0.5}, 21)
    assert [line["data"]["epoch"] for line in _lines(folder / "events.jsonl", "epoch_started")] == [1, 2]


def test_an_epoch_after_the_last_step_is_not_lost_and_is_no_step(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.step(10)
        wait_until((folder / "progress.json").exists)
        before = read_progress(folder)
        run.epoch(3)
    said = read_progress(folder)
    assert (said.epoch, said.steps_completed, said.last_updated) == (3, 1, before.last_updated)


def test_a_caught_error_is_kept_with_where_it_was_and_why_and_ends_nothing(attempt: Starter, folder: Path) -> None:
    def load() -> None:
        try:
            raise ConnectionResetError(104, "Connection reset by peer")
        except ConnectionResetError as cause:
            raise ValueError("shard 7 is unreadable") from cause

    with attempt() as run:
        try:
            load()
        except ValueError as caught:
            run.error(caught, severity="warning", category="data_loading", shard=7, files=["a", "b"])
        run.step(1)
    (line,) = _lines(folder / "errors.jsonl")
    assert (line["exception_type"], line["error_message"]) == ("ValueError", "shard 7 is unreadable")
    assert (line["severity"], line["category"]) == ("warning", "data_loading")
    assert (line["context"], line["attempt_key"]) == ({"shard": 7, "files": ["a", "b"]}, "local:5:0")
    cause, effect = line["traceback"].index("ConnectionResetError: "), line["traceback"].index("ValueError: shard 7")
    assert cause < effect
    assert f'File "{__file__}"' in line["traceback"]
    assert "in load" in line["traceback"]
    record = read_snapshot(folder)
    assert (record.state, record.error) == ("succeeded", None)


@pytest.mark.parametrize("word", [None, "dreadful", 7])
def test_a_severity_that_does_not_exist_gives_way_to_that_of_such_a_failure(
    attempt: Starter, folder: Path, word: Any
) -> None:
    with attempt() as run:
        run.error(MemoryError(), severity=word, category=word)
    (line,) = _lines(folder / "errors.jsonl")
    assert (line["severity"], line["category"], line["failure"]) == ("critical", "memory", "host_oom")


def test_a_caught_error_does_not_keep_alive_what_its_frames_held(attempt: Starter) -> None:
    class Tensor:
        pass

    held: list[weakref.ref[Tensor]] = []

    def step() -> None:
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        raise RuntimeError("CUDA out of memory")

    with attempt() as run:
        try:
            step()
        except RuntimeError as error:
            run.error(error)
        assert held[0]() is None


def test_an_error_of_any_size_and_kind_is_kept(attempt: Starter, folder: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    deep: BaseException = ValueError("deep")
    for _ in range(10_000):
        outer = ValueError("outer")
        outer.__cause__ = deep
        deep = outer
    loop = ValueError("of its own making")
    loop.__context__ = loop
    errors: tuple[Any, ...] = (ValueError("x" * 10**6), Mute(), deep, loop, ValueError("\udcff"), "a text", None)
    with attempt() as run:
        for error in errors:
            run.error(error, context="y" * 10**6, exc="a name of its own")
    lines = _lines(folder / "errors.jsonl")
    assert [line["exception_type"] for line in lines] == ["ValueError", "Mute", *["ValueError"] * 3, *["Exception"] * 2]
    assert len(lines[0]["error_message"]) <= 4000
    assert all(len(text) <= 65536 for text in (folder / "errors.jsonl").read_text().splitlines())


def test_a_note_is_an_event_of_ones_own_whatever_its_data_is_called(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        run.note("shuffled", seed=7, event="e", self="s")
        trainwarden.note("x" * 1000, data={"a": [1, None]})
    mine = [line for line in _lines(folder / "events.jsonl") if line["event_type"][0] in "sx"]
    assert mine[0]["data"] == {"seed": 7, "event": "e", "self": "s"}
    assert len(mine[1]["event_type"]) == 200
    assert mine[1]["data"] == {"data": {"a": [1, None]}}


def test_other_ranks_keep_their_errors_beside_their_heartbeat_and_note_nothing(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with attempt() as run:
        run.note("shuffled")
        run.error(ValueError("mine"))
    assert [line["rank"] for line in _lines(folder / "ranks" / "1.errors.jsonl")] == [1]
    assert not (folder / "events.jsonl").exists()


@pytest.mark.slow
def test_a_loop_that_notes_without_end_while_the_disk_hangs_costs_no_memory(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real: Callable[[Any], list[Path]] = trainwarden.training.journal.JournalFile.flush

    def hanging(journal: Any) -> list[Path]:
        answers.wait(DEADLINE_SECONDS)
        return real(journal)

    monkeypatch.setattr("trainwarden.training.journal.JournalFile.flush", hanging)
    with attempt() as run:
        tracemalloc.start()
        for number in range(2500):
            run.note("noted", number=number, text="x" * 5000)
        for _ in range(400):
            run.error(ValueError("x" * 500), text="x" * 20_000)
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        answers.set()
    assert used < 8 * 2**20
    lines = _lines(folder / "events.jsonl")
    assert next(line for line in lines if line["event_type"] == "noted")["data"]["number"] == 0
    assert sum(line["data"]["count"] for line in lines if line["event_type"] == "lines_dropped") > 1000
    assert read_snapshot(folder).state == "succeeded"


def test_after_the_end_and_without_a_run_nothing_is_reported(attempt: Starter, folder: Path) -> None:
    with attempt() as run:
        pass
    before = (folder / "events.jsonl").read_bytes()
    for call in (run, trainwarden):
        call.epoch(1)
        call.error(ValueError())
        call.note("late")
    assert (folder / "events.jsonl").read_bytes() == before
    assert not (folder / "errors.jsonl").exists()
