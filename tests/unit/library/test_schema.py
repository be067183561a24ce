"""Every document of the record is written and read by one schema, and the rule of counting steps is one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.unit.library.looking import read_metadata, read_progress
from trainwarden.record.folder import encode
from trainwarden.record.metadata import Attempt, Metadata
from trainwarden.record.ownership import LockFile
from trainwarden.record.progress import Checkpoint, Progress
from trainwarden.record.rank import RankBeat
from trainwarden.record.schema import RecordDocument
from trainwarden.record.sentinels import RestartNotice, Sentinel
from trainwarden.record.steps import StepCounter
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import DEFAULT_STALL_SECONDS, Thresholds
from trainwarden.shell.heartbeat import advance

SAVED = Checkpoint("/c/7", 7, 1763800000.25, 9)
DOCUMENTS: list[RecordDocument] = [
    Metadata(
        run_id="r",
        status="failed",
        phase="train",
        last_update=1763800001.5,
        attempts=(Attempt(0, "local:1:0", 1763800000.0), Attempt(1, "local:1:1", 1763800001.0, 40)),
        reason="out of memory",
        environment={"slurm_job_name": "j"},
        thresholds=Thresholds(60.0, {**DEFAULT_STALL_SECONDS, "train": 5.0}),
        s3={"url": "s3://b/r", "errors": 0},
        lines_dropped=3,
    ),
    Progress(
        step=7,
        loss=2.5,
        moved_time=1763800000.125,
        metrics={"lr": 0.1},
        checkpoint=SAVED,
        checkpoints_saved=4,
        checkpoints=(SAVED, Checkpoint("/c/6")),
    ),
    RankBeat(rank=3, step=None, phase="eval", status="running", time=1763800000.0, pid=12, attempt_key="local:1:0"),
    Sentinel(time=1763800000.0, message="gone", attempt_key="local:1:0", rank=2, exit_code=137),
    RestartNotice("local:1:0", "stalled", "i-1", 1763800000.0),
    LockFile("h", 12, "local:1:0", 1763800000.0, 5),
]


@cases("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_a_document_reads_back_as_it_was_written(document: RecordDocument) -> None:
    written = json.loads(json.dumps(document.to_json()))
    assert type(document).from_json(written) == document


def test_a_document_has_no_other_fields_than_its_own() -> None:
    with pytest.raises(TypeError, match="LockFile has only the fields host, pid"):
        LockFile(None, None, None, None, None, "more")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match="LockFile"):
        LockFile().replace(hots="h")


def test_a_field_that_was_not_given_is_not_written() -> None:
    assert RankBeat(rank=1, step=None).to_json() == {"rank": 1, "step": None}


def test_a_change_keeps_the_keys_of_other_tools_and_what_they_wrote_into_ours(tmp_path: Path) -> None:
    theirs = {"run_id": 7, "team": {"name": "nlp"}, "status": "Running", "world_size": "eight", "score": float("nan")}
    store = RecordStore(tmp_path)
    (tmp_path / "metadata.json").write_text(json.dumps(theirs))
    store.update("metadata.json", store.values("metadata.json"), Metadata(phase="eval"))
    text = (tmp_path / "metadata.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        **{name: value for name, value in theirs.items() if name != "score"},
        "phase": "eval",
    }
    assert (read_metadata(tmp_path).status, read_metadata(tmp_path).phase) == ("running", "eval")


class CountingCopy:
    """A copy that keeps what it got."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.contents[name] = content


def test_a_document_is_encoded_once_for_the_folder_and_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []

    def counting(document: Mapping[str, Any]) -> bytes:
        encoded.append(document)
        return encode(document)

    monkeypatch.setattr("trainwarden.record.store.encode", counting)
    copy: Any = CountingCopy()
    RecordStore(tmp_path, copy).write("progress.json", Progress(step=1))
    assert len(encoded) == 1
    assert copy.contents["progress.json"] == (tmp_path / "progress.json").read_bytes()


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "runs" / "r")
    store.write("ranks/3.json", RankBeat(rank=3, step=1))
    store.write("progress.json", Progress(step=1))
    assert read_progress(tmp_path / "runs" / "r").step == 1


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 50), st.integers(0, 50))
def test_shell_commands_count_as_the_library_does(steps: list[int], high_water: int, completed: int) -> None:
    """A command has no memory but the file; the library keeps a counter."""
    counter = StepCounter(high_water, completed, 0)
    values: dict[str, Any] = {"attempt_key": "local:1:0", "high_water": high_water, "steps_completed": completed}
    for number, step in enumerate(steps):
        now = 1763800000.0 + number
        counter.advance(step, now)
        kept, changes = advance(values, {"step": step}, "local:1:1", 1, now)
        values = json.loads(json.dumps({**kept, **changes.to_json()}))
    progress = Progress.from_json(values)
    counted = {name: getattr(progress, name) for name in counter.as_fields()}
    assert counted == counter.as_fields()
    assert progress.attempt_high == counter.attempt_high == max(steps)


@cases("time", [1e30, -1e30, 253_402_300_800, "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+10:00"])
def test_a_time_that_is_none_is_not_carried_on_and_fails_no_heartbeat(time: object) -> None:
    values = {"attempt_key": "local:1:0", "step": 5, "attempt_high": 5, "step_time": time, "moved_time": time}
    kept, progress = advance(values, {"step": 2}, "local:1:0", 0, 1763800000.0)
    document = {**kept, **progress.to_json()}
    assert (document["step"], document["step_time"]) == (2, None)
    assert any("step_time" in problem for problem in Progress.from_json(values).problems)
