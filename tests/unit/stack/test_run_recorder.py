"""What the launcher writes into a run record, as readers of the record see it."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden.record.clock import to_iso
from trainwarden.record.folder import LOG, METADATA, write_json
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.sentinels import announced_restart
from trainwarden.record.snapshot import read_snapshot
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import Thresholds
from trainwarden.stack import launcher
from trainwarden.stack.launcher import Job
from trainwarden.stack.run_recorder import RunRecorder
from trainwarden.taxonomy import FAILURES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "r1"
    (run / "logs").mkdir(parents=True)
    return run


def _recorder(folder: Path) -> RunRecorder:
    return RunRecorder(folder, Thresholds(stale_seconds=15))


def _job() -> Job:
    return Job("7-1", "r1", started=time.time())


def _ended(job: Job, state: str, code: int) -> Job:
    return replace(job, state=state, exit_code=code, ended=time.time())


def _library_takes_over(folder: Path, job: Job) -> None:
    values = {
        "run_id": "r1",
        "status": "running",
        "phase": "train",
        "attempt": 0,
        "attempt_key": job.attempt_key,
        "pid": os.getpid() + 1,
        "last_update": to_iso(time.time() - 60),
    }
    write_json(folder / METADATA, values)


def _metadata(folder: Path) -> Metadata:
    metadata = read_metadata(folder)
    assert isinstance(metadata, Metadata)
    return metadata


def test_each_generation_is_a_new_pending_attempt_and_the_old_log_is_kept(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    (folder / LOG).write_text("first\n")
    recorder.started(replace(job, generation=1))
    metadata = _metadata(folder)
    assert (metadata.status, metadata.attempt, metadata.attempt_key) == ("pending", 1, "local:7-1:1")
    assert [each.key for each in metadata.attempts] == ["local:7-1:0", "local:7-1:1"]
    assert [path.read_text() for path in (folder / "logs").iterdir()] == ["first\n"]


def test_a_command_without_the_library_lives_while_it_can_move(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    clock = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    recorder.alive(job, moving=lambda: False)
    assert _metadata(folder).status == "pending"
    clock += 100
    recorder.alive(job, moving=lambda: True)
    assert (_metadata(folder).status, _metadata(folder).phase) == ("running", "idle")
    assert _metadata(folder).thresholds.stale_seconds == 15


def test_a_record_that_the_training_writes_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    before = (folder / METADATA).read_bytes()
    clock = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    recorder.alive(job, moving=lambda: True)
    assert (folder / METADATA).read_bytes() == before


def test_a_silent_death_is_recorded_as_a_failure_with_its_signal(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    recorder.ended(_ended(job, launcher.FAILED, -signal.SIGKILL))
    snapshot = read_snapshot(folder)
    assert snapshot.state == "failed"
    assert snapshot.error is not None
    assert (snapshot.error.failure, snapshot.error.exit_code) == ("killed", 137)
    assert "signal 9" in snapshot.error.message


def test_an_attempt_that_was_ended_for_a_restart_did_not_fail(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    recorder.restarting(job, "stalled", "i1")
    assert announced_restart(folder, job.attempt_key) is not None
    recorder.ended(_ended(job, launcher.FAILED, -signal.SIGKILL))
    snapshot = read_snapshot(folder)
    assert (snapshot.state, snapshot.error) == ("cancelled", None)
    assert snapshot.metadata is not None
    assert snapshot.metadata.reason == "restart"


def test_a_restart_that_was_announced_long_ago_and_did_not_come_explains_no_failure(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    recorder.restarting(job, "stalled", "i1")
    notice = json.loads((folder / "_restart").read_text())
    (folder / "_restart").write_text(json.dumps({**notice, "time": to_iso(time.time() - 3600)}))
    recorder.ended(_ended(job, launcher.FAILED, -signal.SIGKILL))
    snapshot = read_snapshot(folder)
    assert snapshot.state == "failed"
    assert snapshot.error is not None
    assert snapshot.error.failure == "killed"


def test_a_command_without_the_library_that_ends_well_has_succeeded(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    recorder.ended(_ended(job, launcher.COMPLETED, 0))
    assert read_snapshot(folder).state == "succeeded"


def test_a_training_that_left_no_completion_is_never_called_a_success(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    assert recorder.completed(job) is False
    recorder.ended(_ended(job, launcher.FAILED, 0))
    assert read_snapshot(folder).state == "failed"


def test_a_failure_after_the_training_has_completed_is_recorded(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    RecordStore(folder).record_completion(key=job.attempt_key, step=9)
    recorder.ended(_ended(job, launcher.FAILED, 1))
    snapshot = read_snapshot(folder)
    assert (snapshot.state, snapshot.completion) == ("failed", None)
    assert snapshot.error is not None
    assert snapshot.error.message == "the command ended with status 1 after its training had completed"


@pytest.mark.parametrize(("failure", "state"), [("terminated", "cancelled"), ("cuda_oom", "failed")])
def test_a_cancel_by_the_launcher_is_the_end_that_the_ranks_could_not_explain(
    folder: Path, failure: str, state: str
) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    _library_takes_over(folder, job)
    RecordStore(folder).record_failure(key=job.attempt_key, failure=FAILURES[failure], message="its message")
    recorder.ended(_ended(job, launcher.CANCELLED, -signal.SIGTERM))
    snapshot = read_snapshot(folder)
    assert (snapshot.state, _metadata(folder).status) == (state, state)
    assert (snapshot.error is None) == (state == "cancelled")


def test_the_cause_that_the_training_recorded_stays(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    recorder.started(job)
    error = {"attempt_key": job.attempt_key, "message": "CUDA out of memory", "time": to_iso(time.time())}
    write_json(folder / "_error", error)
    recorder.ended(_ended(job, launcher.FAILED, 1))
    snapshot = read_snapshot(folder)
    assert snapshot.error is not None
    assert snapshot.error.message == "CUDA out of memory"


def test_what_somebody_else_wrote_into_the_record_does_not_stop_the_launcher(folder: Path) -> None:
    recorder, job = _recorder(folder), _job()
    (folder / METADATA).write_text('{"attempts": null, "status": "running", "loss": NaN}')
    recorder.started(job)
    assert _metadata(folder).attempt_key == "local:7-1:0"
    (folder / METADATA).write_text('{"attempts": [1, {"attempt": "x"}]}')
    recorder.started(replace(job, generation=1))
    assert _metadata(folder).attempt_key == "local:7-1:1"
