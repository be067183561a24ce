"""Checkpoints are recorded, and resumed from."""

import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainwarden
from tests.unit.library.looking import read_progress, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Starter
from tests.waiting import wait_until


def _checkpoint(folder: Path, step: Any) -> Path:
    path = folder / f"step-{step}.npz"
    np.savez(path, weights=np.full(100, step))
    return path


def test_the_newest_checkpoint_that_is_whole_is_resumed_from(
    attempt: Starter, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt(0) as run:
        assert run.resume_checkpoint() is None
        for number in (10, 20, 30, 40):
            run.step(number)
            run.checkpoint_saved(_checkpoint(tmp_path, number))
    said = read_progress(folder)
    assert (said.checkpoint.step, said.checkpoints_saved) == (40, 4)
    assert [one.step for one in said.checkpoints] == [40, 30, 20]
    os.truncate(tmp_path / "step-40.npz", 300)
    (tmp_path / "step-30.npz").unlink()
    with attempt(1) as run, caplog.at_level(logging.WARNING, "trainwarden"):
        assert run.resume_checkpoint() == trainwarden.resume_checkpoint() == str(tmp_path / "step-20.npz")
    assert "step-40.npz is incomplete: it has 300 bytes" in caplog.text
    assert "step-30.npz is incomplete: it does not exist" in caplog.text


@pytest.mark.parametrize("left", [None, "", '{"step": 4', "[]"])
def test_a_progress_that_cannot_be_read_does_not_make_the_training_start_over(
    attempt: Starter, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str | None
) -> None:
    with attempt(0) as run:
        for number in (10, 20):
            run.step(number)
            run.checkpoint_saved(_checkpoint(tmp_path, number))
        run.step(25)
    progress = folder / "progress.json"
    if left is None:
        progress.unlink()
    else:
        progress.write_text(left)
    with attempt(1) as run:
        assert run.resume_checkpoint() == str(tmp_path / "step-20.npz")
        run.step(21)
    said = read_progress(folder)
    assert ([one.step for one in said.checkpoints], said.high_water >= 21) == ([20, 10], True)
    assert [path.read_text() for path in folder.glob("progress.json.damaged-*")] == ([] if left is None else [left])
    assert ("cannot be read" in caplog.text) == (left is not None)


def test_a_run_whose_checkpoints_cannot_be_known_shows_it_before_it_starts_over(
    attempt: Starter, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    (folder / "progress.json").touch()
    with attempt() as run:
        assert run.resume_checkpoint() is None
    assert "NO CHECKPOINT IS KNOWN" in caplog.text


def test_a_checkpoint_is_on_disk_before_it_is_relied_on(
    attempt: Starter, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".json")[0])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    with attempt() as run:
        run.step(5)
        run.checkpoint_saved(_checkpoint(tmp_path, 5))
        wait_until((folder / "checkpoint.json").exists)
        assert {".progress", ".checkpoint"} <= set(synced)


def test_a_disk_that_hangs_under_a_checkpoint_silences_neither_life_nor_end(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hanging(_path: Path) -> int:
        answers.wait(DEADLINE_SECONDS)
        return 77

    monkeypatch.setattr("trainwarden.training.checkpoints.size_of", hanging)
    monkeypatch.setattr("trainwarden.training.checkpoints.SIZE_TIMEOUT_SECONDS", 0.05)
    with attempt() as run:
        run.checkpoint_saved("/mnt/slow", 5)
        wait_until(lambda: (said := read_progress(folder)) and said.checkpoint)
        assert read_progress(folder).checkpoint.size_bytes is None
        answers.set()
        wait_until(lambda: read_progress(folder).checkpoint.size_bytes == 77)
        assert read_progress(folder).checkpoints_saved == 1
        answers.clear()
        run.checkpoint_saved("/mnt/slow2", 6)
    said = read_snapshot(folder)
    assert (said.state, said.progress.checkpoint.step) == ("succeeded", 6)
    answers.set()


def test_a_launchers_choice_comes_first_if_it_is_whole(
    attempt: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt(0) as run:
        for number in (10, 20):
            run.checkpoint_saved(_checkpoint(tmp_path, number), number)
    monkeypatch.setenv("TRAINWARDEN_RESUME_CHECKPOINT", str(tmp_path / "step-10.npz"))
    with attempt(1) as run:
        assert run.resume_checkpoint() == str(tmp_path / "step-10.npz")
        os.truncate(tmp_path / "step-10.npz", 300)
        assert run.resume_checkpoint() == str(tmp_path / "step-20.npz")


def test_a_checkpoint_is_recorded_without_waiting_for_the_next_step(
    attempt: Starter, folder: Path, tmp_path: Path
) -> None:
    with attempt() as run:
        run.step(5)
        run.checkpoint_saved(_checkpoint(tmp_path, 5))
        wait_until(lambda: (said := read_progress(folder)) and said.checkpoint)
        assert read_progress(folder).checkpoint.size_bytes == (tmp_path / "step-5.npz").stat().st_size
