"""The copy of a record receives every file of the folder, also those that the folder could not store."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import cases
from tests.small_disk import small_disk
from tests.unit.library.looking import read_metadata
from tests.unit.library.processes import DEADLINE_SECONDS
from tests.waiting import wait_until
from trainwarden.identity import AttemptKey
from trainwarden.record.attempt import begin_attempt
from trainwarden.record.progress import Checkpoint
from trainwarden.record.steps import StepCounter
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import Thresholds
from trainwarden.taxonomy import FAILURES
from trainwarden.training.context import RunContext
from trainwarden.training.events import RunEvent
from trainwarden.training.loop import LoopState
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome, exception_outcome
from trainwarden.training.recorder import RecordThread

if TYPE_CHECKING:
    from trainwarden.record.store import RecordCopy


class FakeCopy:
    """Keeps what it is given; a file's content is read when the copy is closed."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.files: dict[str, Path] = {}
        self.closed_with: float | None = None
        self.finishes = True

    def put(self, name: str, content: bytes) -> None:
        assert self.closed_with is None
        self.contents[name] = content

    def put_file(self, name: str, path: Path) -> None:
        assert self.closed_with is None
        self.files[name] = path

    def state(self) -> dict[str, Any]:
        return {"url": "s3://b/p/r", "waiting": 0 if self.closed_with else len(self.contents)}

    def remove(self, name: str) -> None:
        self.contents.pop(name, None)

    def fetch(self, names: tuple[str, ...], timeout_seconds: float) -> dict[str, bytes]:
        return {}

    def fetch_error(self, timeout_seconds: float) -> None:
        pass

    def close(self, timeout_seconds: float) -> bool:
        self.contents.update({name: path.read_bytes() for name, path in self.files.items() if path.exists()})
        self.closed_with = timeout_seconds
        return self.finishes


def _recorder(runs: Path, copy: RecordCopy, rank: int = 0) -> tuple[RecordThread, LoopState]:
    folder, key = runs / "r", AttemptKey("local", "5", 0)
    folder.mkdir(exist_ok=True)
    subject = RunContext(
        run_id="r",
        folder=folder,
        key=key,
        rank=rank,
        start=time.time(),
        beginning=begin_attempt(folder, key, time.time()) if rank == 0 else None,
        world_size=None,
        total_steps=None,
        framework=None,
        model=None,
        method=None,
        thresholds=Thresholds(),
    )
    loop = LoopState(StepCounter())
    recorder = RecordThread(subject, loop, copy)
    recorder.open()
    return recorder, loop


def test_every_file_of_the_folder_is_copied_but_those_of_the_ranks(tmp_path: Path) -> None:
    copy = FakeCopy()
    recorder, loop = _recorder(tmp_path, copy)
    wait_until(lambda: "metadata.json" in copy.contents)
    loop.report(1, metrics={})
    recorder.add_checkpoint(Checkpoint(str(tmp_path), 1, time.time()))
    recorder.add_event(RunEvent(time.time(), "n"))
    assert recorder.finish(exception_outcome(ValueError("x")), DEADLINE_SECONDS)
    here = {entry.name for entry in (tmp_path / "r").iterdir() if entry.is_file()}
    assert here == {
        "metadata.json",
        "progress.json",
        "checkpoint.json",
        "events.jsonl",
        "errors.jsonl",
        "summary.json",
        "summary.0.json",
        "_error",
    }
    assert set(copy.contents) == here
    for name in here - {"metadata.json"}:
        assert copy.contents[name] == (tmp_path / "r" / name).read_bytes(), name
    assert json.loads(copy.contents["metadata.json"])["status"] == "failed"


def test_the_record_states_how_its_copy_fares_to_the_very_end(tmp_path: Path) -> None:
    copy = FakeCopy()
    recorder, _ = _recorder(tmp_path, copy)
    assert _metadata(tmp_path)["s3"] == {"url": "s3://b/p/r", "waiting": 0}
    assert recorder.finish(SUCCEEDED, 7.0)
    assert copy.closed_with is not None
    assert 0 < copy.closed_with < 7.0
    assert "_complete" in copy.contents
    assert (_metadata(tmp_path)["status"], _metadata(tmp_path)["s3"]["waiting"]) == ("succeeded", 0)


@pytest.mark.process
def test_a_full_disk_keeps_nothing_from_the_copy(tmp_path: Path) -> None:
    copy = FakeCopy()
    with small_disk(tmp_path / "disk") as disk:
        recorder, loop = _recorder(disk.path, copy)
        disk.fill()
        loop.report(7, metrics={})
        wait_until(lambda: json.loads(copy.contents.get("progress.json", b"{}")).get("step") == 7)
        assert recorder.finish(exception_outcome(ValueError("what nobody could write down")), DEADLINE_SECONDS)
    assert json.loads(copy.contents["_error"])["message"] == "what nobody could write down"
    assert json.loads(copy.contents["metadata.json"])["status"] == "failed"
    assert json.loads(copy.contents["metadata.json"])["write_errors"] > 0
    assert json.loads(copy.contents["summary.json"])["training"]["status"] == "failed"


def test_another_ranks_failure_is_copied_as_it_wrote_it(tmp_path: Path) -> None:
    copy = FakeCopy()
    recorder, _ = _recorder(tmp_path, copy)
    RecordStore(tmp_path / "r").record_failure(key="local:5:0", failure=FAILURES["cuda_oom"], message="first", rank=3)
    assert recorder.finish(exception_outcome(ValueError("second")), DEADLINE_SECONDS)
    said = json.loads(copy.contents["_error"])
    assert (said["message"], said["rank"]) == ("first", 3)


def test_other_ranks_copy_their_failure_and_nothing_else(tmp_path: Path) -> None:
    copy = FakeCopy()
    recorder, _ = _recorder(tmp_path, copy, rank=1)
    assert recorder.finish(exception_outcome(ValueError("mine")), DEADLINE_SECONDS)
    assert set(copy.contents) == {"_error"}


def test_an_attempt_that_was_replaced_copies_nothing_over_its_successors(tmp_path: Path) -> None:
    copy = FakeCopy()
    recorder, loop = _recorder(tmp_path, copy)
    begun = read_metadata(tmp_path / "r").attempts
    newer = begun[0].replace(attempt=1, key="local:5:1")
    document = {**_metadata(tmp_path), "attempt": 1, "attempt_key": newer.key}
    document["attempts"] = [{"attempt": 0, "key": "local:5:0"}, {"attempt": 1, "key": "local:5:1"}]
    (tmp_path / "r" / "metadata.json").write_text(json.dumps(document))
    copy.contents.clear()
    loop.report(9, metrics={})
    assert recorder.finish(exception_outcome(ValueError("late")), DEADLINE_SECONDS)
    assert set(copy.contents) <= {"_error.0", "errors.jsonl"}
    assert json.loads(copy.contents["_error.0"])["message"] == "late"
    assert not (tmp_path / "r" / "summary.json").exists()


@cases("method", ["put", "put_file", "state", "close"])
def test_a_copy_that_breaks_its_promise_not_to_raise_harms_nothing_here(tmp_path: Path, method: str) -> None:
    copy = FakeCopy()

    def broken(*_: object) -> Any:
        raise RuntimeError("broken")

    setattr(copy, method, broken)
    recorder, loop = _recorder(tmp_path, copy)
    loop.report(1, metrics={})
    assert recorder.finish(SUCCEEDED, DEADLINE_SECONDS)
    assert (_metadata(tmp_path)["status"], recorder.write_errors) == ("succeeded", 0)
    assert (tmp_path / "r" / "_complete").exists()


@pytest.mark.slow
def test_a_copy_that_takes_all_the_time_there_is_leaves_the_end_recorded_in_time(tmp_path: Path) -> None:
    class Slow(FakeCopy):
        def close(self, timeout_seconds: float) -> bool:
            threading.Event().wait(timeout_seconds)
            return False

    recorder, _ = _recorder(tmp_path, Slow())
    assert recorder.finish(AttemptOutcome("cancelled", "SIGTERM"), 5.0)
    assert (_metadata(tmp_path)["status"], _metadata(tmp_path)["reason"]) == ("cancelled", "SIGTERM")


def _metadata(runs: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((runs / "r" / "metadata.json").read_text())
    return document
