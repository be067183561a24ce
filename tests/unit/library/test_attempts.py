"""A run that is started again is a new attempt of it."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import trainwarden
from tests.unit.library.looking import read_metadata, read_progress, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Script, Starter, line
from tests.waiting import wait_until
from trainwarden.identity import host_name
from trainwarden.record.folder import write_json
from trainwarden.record.store import RecordStore
from trainwarden.taxonomy import FAILURES


def test_attempts_are_counted_once_for_each_key_and_hold_where_they_resumed(attempt: Starter, folder: Path) -> None:
    for generation, first in ((0, 1), (1, 11), (1, 21), (2, 31)):
        with attempt(generation) as run:
            run.step(first)
    attempts = [(one.attempt, one.key, one.resume_step) for one in read_metadata(folder).attempts]
    assert attempts == [(0, "local:5:0", 1), (1, "local:5:1", 11), (2, "local:5:2", 31)]
    assert read_metadata(folder).attempt == 2


def test_a_new_attempt_keeps_the_runs_start_and_counters_and_starts_its_own(attempt: Starter, folder: Path) -> None:
    with attempt(0) as run:
        for number in (1, 2, 3):
            run.step(number, loss=math.inf)
    first = read_metadata(folder)
    with attempt(1) as run:
        run.step(2)
    second, progress = read_metadata(folder), read_progress(folder)
    assert second.start_time == first.start_time
    assert second.attempt_start_time > first.attempt_start_time
    assert (progress.step, progress.high_water, progress.steps_completed, progress.nonfinite) == (2, 3, 4, 3)
    assert (progress.attempt, progress.attempt_key) == (1, "local:5:1")


def test_a_new_attempt_puts_the_old_failure_and_its_late_files_aside(attempt: Starter, folder: Path) -> None:
    with pytest.raises(MemoryError), attempt(0):
        raise MemoryError
    assert read_snapshot(folder).state == "failed"
    with attempt(1):
        assert read_snapshot(folder).state == "running"
        assert (folder / "_error.0").exists()
        RecordStore(folder).record_failure(key="local:5:0", failure=FAILURES["peer_reset"], message="late")
        assert read_snapshot(folder).state == "running"


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_failure_of_an_early_rank_survives_a_rank_0_that_a_launcher_announced(
    attempt: Starter, folder: Path, status: str
) -> None:
    folder.mkdir()
    launcher = {"status": status, "attempt": 0, "attempt_key": "local:5:0", "host": host_name(), "pid": os.getppid()}
    write_json(folder / "metadata.json", {**launcher, "attempts": [{"attempt": 0, "key": "local:5:0"}]})
    RecordStore(folder).record_failure(key="local:5:0", failure=FAILURES["host_oom"], message="of rank 1")
    with attempt(0):
        pass
    assert (read_snapshot(folder).state, read_snapshot(folder).error.message) == ("failed", "of rank 1")


def test_a_second_start_under_the_same_key_drops_the_first_ones_failure(attempt: Starter, folder: Path) -> None:
    """A batch script may try twice within one job."""
    with pytest.raises(MemoryError), attempt(0):
        raise MemoryError
    with attempt(0) as run:
        run.step(1)
    assert (read_snapshot(folder).state, read_metadata(folder).attempt) == ("succeeded", 0)


@pytest.mark.process
def test_an_old_attempt_that_still_lives_stops_writing_when_it_sees_a_new_one(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back to life on another host, where no lock tells."""
    old = script.start(
        """
        import trainwarden
        from trainwarden.training import writer
        writer.LIVENESS_SECONDS = 0
        with trainwarden.run("r") as run:
            run.step(1)
            print("runs", flush=True)
            while not run._recorder._writer._fence.closed:
                run.step(2)
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:0",
    )
    assert line(old.stdout) == "runs\n"
    (script.folder / ".owner").unlink()
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", "local:5:1")
    # What the old one may have written at the same moment is put right by the next sign of life.
    monkeypatch.setattr("trainwarden.training.writer.LIVENESS_SECONDS", 0.0)
    with trainwarden.run("r", dir=script.runs) as new:
        assert old.wait(DEADLINE_SECONDS) == 0
        assert not (script.folder / "_complete").exists()
        new.step(50)
        wait_until(lambda: (said := read_progress(script.folder)) and said.step == 50)
        wait_until(lambda: read_metadata(script.folder).attempt_key == "local:5:1")
        assert read_metadata(script.folder).status == "running"


def test_a_launchers_count_is_used_until_the_record_has_its_own(
    attempt: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT", "4")
    with attempt(0):
        assert read_metadata(folder).attempt == 4
    with attempt(1):
        assert read_metadata(folder).attempt == 5


def test_a_damaged_record_does_not_keep_a_training_from_starting(attempt: Starter, folder: Path) -> None:
    folder.mkdir()
    (folder / "metadata.json").write_text('{"atte')
    (folder / "progress.json").write_text('{"attempt": 6, "step": 40, "high_water": 44}')
    with attempt() as run:
        run.step(41)
    assert read_metadata(folder).attempt == 7
    assert read_progress(folder).high_water == 44


def _lost(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [line["data"] for line in lines if line["event_type"] == "attempt_lost"]


@pytest.mark.process
@pytest.mark.parametrize("message", [None, "the node is gone"])
def test_an_attempt_that_never_recorded_its_end_is_an_event_of_the_next(script: Script, message: str | None) -> None:
    code = """
        import os, signal, time, trainwarden
        with trainwarden.run("r") as run:
            run.step({step})
            while {killed}:
                if os.path.exists(run.folder / "progress.json"):
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.01)
    """
    script.run(code.format(step=7, killed=True), TRAINWARDEN_ATTEMPT_KEY="local:5:0")
    last = script.read("metadata.json")["last_update"]
    if message:
        RecordStore(script.folder).record_failure(key="local:5:0", failure=FAILURES["killed"], message=message)
    for generation in (1, 2):
        script.run(code.format(step=8, killed=False), TRAINWARDEN_ATTEMPT_KEY=f"local:5:{generation}")
    said = {"attempt_key": "local:5:0", "attempt": 0, "last_update": last, "step": 7, "error": message}
    assert _lost(script.folder) == [said]


def test_attempts_that_ended_or_go_on_are_not_lost(attempt: Starter, folder: Path) -> None:
    for generation in (0, 1, 1):
        with attempt(generation) as run:
            run.step(1)
    with pytest.raises(ValueError, match="x"), attempt(2):
        raise ValueError("x")
    with attempt(3):
        pass
    assert _lost(folder) == []


@pytest.mark.process
def test_a_restarted_attempt_states_incident_reason_and_checkpoint_in_its_output_and_its_events(
    script: Script,
) -> None:
    script.run(
        """
        import trainwarden
        with trainwarden.run("r") as run:
            run.step(7)
            saved = run.folder / "step_7.safetensors"
            header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
            saved.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
            run.checkpoint_saved(saved, 7)
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:0",
    )
    RecordStore(script.folder).announce_restart("local:5:0", "a hang\nof rank 1", "4711")
    code = """
        import trainwarden
        with trainwarden.run("r") as run:
            run.resume_checkpoint(trust="complete")
    """
    output = [script.run(code, TRAINWARDEN_ATTEMPT_KEY=f"local:5:{generation}") for generation in (1, 2)]
    restarted, not_by_us = (done.stderr for done in output)
    assert "restarted by Trainwarden: incident 4711, reason: a hang of rank 1" in restarted
    assert f"restarted by Trainwarden: from checkpoint step 7, {script.folder}" in restarted
    assert "Trainwarden: " not in not_by_us
    lines = [json.loads(line) for line in (script.folder / "events.jsonl").read_text().splitlines()]
    [event] = [line["data"] for line in lines if line["event_type"] == "attempt_restarted"]
    assert event == {
        "attempt_key": "local:5:0",
        "action": "restart",
        "incident": "4711",
        "reason": "a hang\nof rank 1",
    }
