"""`trainwarden checkpoints`: its text, JSON and path output, and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from trainwarden.checkpoint.contents import DamagedFile
from trainwarden.checkpoint.pickle_scan import read_values
from trainwarden.cli import main
from trainwarden.deadline import Deadline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (10, 20):
        write(tmp_path / f"step_{step}", formats.dcp())
    (tmp_path / "step_20" / "__2_0.distcp").unlink()
    return tmp_path


def test_people_see_all_of_them_with_the_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"  incomplete    step 20          {folder}/step_20"
    assert lines[1].strip() == "1 of 3 files missing that .metadata promises: __2_0.distcp"
    assert lines[2] == f"* complete      step 10          {folder}/step_10"


def test_scripts_get_the_path_alone_and_the_reasons_beside_it(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["checkpoints", "--newest", str(folder)]) == 0
    out, err = capfdbinary.readouterr()
    assert out == os.fsencode(folder / "step_10") + b"\n"
    assert b"step_20 is incomplete" in err


def test_programs_get_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "latest").write_text("step_10")
    assert main(["checkpoints", "--format", "json", str(folder)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["newest"]["step"] == 10
    assert [(one["step"], one["answer"], one["tracked"]) for one in document["checkpoints"]] == [
        (20, "incomplete", False),
        (10, "complete", True),
    ]
    assert document["remarks"] == ["latest names step_10, and step 20 is there as well"]


def test_the_exit_status_is_one_of_complete_incomplete_unknown_misuse(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "opaque.pt").write_bytes(b"\x80\x02pickled")
    (folder / "empty").mkdir()
    paths = [folder / "step_10", folder / "step_20", folder / "empty", folder / "opaque.pt", folder / "absent"]
    assert [main(["checkpoints", str(path)]) for path in paths] == [0, 1, 1, 3, 2]
    assert "absent: it does not exist" in capsys.readouterr().err
    assert [main(["checkpoints", "--newest", str(path)]) for path in paths] == [0, 1, 1, 3, 2]
    out = capsys.readouterr().out.splitlines()
    for wrong in (
        [],
        ["--timeout", "0", str(folder)],
        ["--timeout", "soon", str(folder)],
        ["--format", "xml", str(folder)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["checkpoints", *wrong])
        assert ended.value.code == 2
    assert out == [str(folder / "step_10"), str(folder / "opaque.pt")], (
        "what is incomplete is for nobody to resume from"
    )


@pytest.mark.process
def test_a_name_that_is_no_text_reaches_a_script_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / os.fsdecode(b"step_10\xff"), formats.dcp())
    for options in (["--newest"], [], ["--format", "json"]):
        command = [sys.executable, "-m", "trainwarden", "checkpoints", *options, str(tmp_path)]
        done = subprocess.run(
            command, check=False, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "utf-8"}
        )
        assert done.returncode == 0, done.stderr
        if options == ["--newest"]:
            assert done.stdout == os.fsencode(path) + b"\n"
        elif options:
            assert json.loads(done.stdout)["newest"]["path"] == str(path)


def test_nothing_is_marked_where_nothing_can_be_resumed_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", str(folder / "step_20")]) == 1
    assert "*" not in capsys.readouterr().out


def test_what_looks_like_a_checkpoint_and_is_not_counted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "epoch_3").mkdir()
    (tmp_path / "step_5.tmp").mkdir()
    (tmp_path / "train.log").touch()
    (tmp_path / "step_7.json").touch()
    (tmp_path / "step_8").mkdir()
    (tmp_path / "step_8-unfinished").touch()
    assert main(["checkpoints", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "step_7.json is not counted: files count with the endings .pt" in out
    assert "step_8 is not counted: step_8-unfinished beside it marks it" in out
    assert "step_8-unfinished is" not in out
    assert "epoch_3 is not counted: its name gives no step" in out
    assert "step_5.tmp is not counted: its name is that of something unfinished" in out
    assert "train.log" not in out


def test_a_wrong_bucket_is_called_that_and_nothing_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "s3://b/x"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("trainwarden checkpoints: s3://b/x: the bucket's name is not usable: expected 3 to 255")


def test_a_file_that_should_hold_a_pickle_is_named() -> None:
    with pytest.raises(
        DamagedFile, match=r"mp_rank_00_model_states\.pt holds something that should be a pickle and is none"
    ):
        read_values(b"\xff\xff", {"dp_world_size"}, Deadline(60), "mp_rank_00_model_states.pt")
