"""Records are read without trust: an invalid field does not affect the others."""

import json
import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.library.looking import read_metadata, read_progress, read_snapshot
from trainwarden.record.document import Unreadable
from trainwarden.record.folder import run_folders, runs_dir, write_json
from trainwarden.record.rank import RankBeat, read_ranks
from trainwarden.record.thresholds import DEFAULT_STALL_SECONDS


def test_the_few_keys_that_other_monitors_write_are_a_whole_record(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text(
        '{"run_id": "m", "status": "running", "phase": "training", "last_update": "2025-08-04T19:23:45",'
        ' "instance_id": "i-1"}'
    )
    (tmp_path / "progress.json").write_text(
        '{"step": 120, "total_steps": 1000, "loss": 2.5, "learning_rate": 1e-4, "last_updated": "2025-08-04T19:23:45Z"}'
    )
    seen = read_snapshot(tmp_path)
    assert (seen.state, seen.metadata.phase, seen.metadata.instance_id) == ("running", "train", "i-1")
    assert seen.metadata.last_update == seen.progress.last_updated == 1754335425.0
    assert (seen.progress.step, seen.progress.total_steps, seen.progress.loss) == (120, 1000, 2.5)
    assert (seen.metadata.attempt, seen.metadata.attempt_key, seen.error, seen.unreadable) == (None, None, None, ())
    assert seen.metadata.thresholds.stall_seconds == DEFAULT_STALL_SECONDS


@cases(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b'{"run_id": "m", "sta', "not JSON"),
        (b"[1, 2]", "list"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_damaged_file_is_unreadable_with_a_reason_and_never_an_exception(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "metadata.json").write_bytes(content)
    said = read_metadata(tmp_path)
    assert isinstance(said, Unreadable)
    assert reason in said.reason


def test_a_link_or_a_pipe_in_place_of_a_file_is_not_followed_or_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"status": "running"}')
    (tmp_path / "metadata.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "progress.json")
    assert "link" in read_metadata(tmp_path).reason
    assert "plain file" in read_progress(tmp_path).reason


def test_no_file_is_none_and_not_a_failure(tmp_path: Path) -> None:
    assert (read_metadata(tmp_path), read_progress(tmp_path), read_ranks(tmp_path)) == (None, None, [])


def test_an_odd_value_costs_its_own_key_and_is_named(tmp_path: Path) -> None:
    document = {"status": "exploded", "phase": "warp", "last_update": "soon", "attempt": 1.5, "host": ["h"], "pid": 7}
    (tmp_path / "metadata.json").write_text(json.dumps(document))
    said = read_metadata(tmp_path)
    assert (said.status, said.last_update, said.attempt, said.host) == (None, None, None, None)
    assert (said.pid, said.phase) == (7, "train")
    assert {problem.partition(":")[0] for problem in said.problems} == {"status", "last_update", "attempt", "host"}


def test_nan_and_infinity_are_missing_values(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text('{"step": 3, "loss": NaN, "learning_rate": Infinity, "grad_norm": true}')
    said = read_progress(tmp_path)
    assert (said.step, said.loss, said.learning_rate, said.grad_norm) == (3, None, None, None)


def test_text_that_cannot_be_encoded_again_is_made_so(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"model": "a\\ud800b"}')
    assert read_metadata(tmp_path).model == "a?b"


def test_ranks_are_read_in_their_order_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for name in ("10.json", "2.json", "0.json", "02.json", "x.json", ".1.json.tmp", "1.txt"):
        write_json(tmp_path / "ranks" / name, {"step": 5, "attempt_key": "local:1:0"})
    assert [beat.rank for beat in read_ranks(tmp_path) if isinstance(beat, RankBeat)] == [0, 2, 10]


def test_ranks_of_another_attempt_are_no_part_of_the_snapshot(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    write_json(tmp_path / "metadata.json", {"status": "running", "attempt_key": "local:1:1"})
    write_json(tmp_path / "ranks" / "0.json", {"attempt_key": "local:1:1"})
    write_json(tmp_path / "ranks" / "1.json", {"attempt_key": "local:1:0"})
    assert [beat.rank for beat in read_snapshot(tmp_path).ranks] == [0]


def test_only_folders_that_can_name_a_run_are_runs(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden", "x y"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert [folder.name for folder in run_folders(tmp_path)] == ["a", "b"]
    assert list(run_folders(tmp_path / "absent")) == []


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "metadata.json", {"status": "running"})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "metadata.json", {"loss": float("nan")})
    assert read_metadata(tmp_path).status == "running"
    assert [path.name for path in tmp_path.iterdir()] == ["metadata.json"]


def test_a_file_of_the_record_can_be_read_by_other_users(tmp_path: Path) -> None:
    """The exporter rarely runs as the user who trains."""
    before = os.umask(0o022)
    try:
        write_json(tmp_path / "metadata.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "metadata.json").stat().st_mode & 0o777 == 0o644


def test_the_runs_folder_is_the_one_given_else_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwarden.record.folder.SHARED_RUNS", str(tmp_path / "absent"))
    home = {"HOME": "/home/u"}
    assert runs_dir({"TRAINWARDEN_RUNS_DIR": "/r"}).as_posix() == "/r"
    assert runs_dir({**home, "XDG_STATE_HOME": "/s"}).as_posix() == "/s/trainwarden/runs"
    assert runs_dir({**home, "XDG_STATE_HOME": "relative"}).as_posix() == "/home/u/.local/state/trainwarden/runs"
    (tmp_path / "absent").mkdir()
    assert runs_dir(home) == tmp_path / "absent"
