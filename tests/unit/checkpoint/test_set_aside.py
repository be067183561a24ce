"""`trainwarden checkpoints set-aside`: what is proven damaged goes out of the way, whole, and nothing else does."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from tests.users import ANOTHER, needs_root
from trainwarden.checkpoint.find import newest
from trainwarden.checkpoint.set_aside import QUIET_SECONDS
from trainwarden.cli import main

OLD = time.time() - 2 * QUIET_SECONDS


def age(path: Path, seconds: float = OLD) -> None:
    for each in (path, *path.rglob("*")):
        os.utime(each, (seconds, seconds), follow_symlinks=False)


def damaged(path: Path) -> Path:
    write(path, formats.dcp())
    (path / "__2_0.distcp").unlink()
    age(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "step_10", formats.dcp())
    damaged(tmp_path / "step_20")
    return tmp_path


def everything(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}


def run(*arguments: str | Path) -> int:
    return main(["checkpoints", "set-aside", *map(str, arguments)])


def test_without_apply_it_is_shown_and_nothing_is_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(folder)
    assert run(folder / "step_20") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{folder}/step_20 would be set aside as {folder}/.set-aside-20/step_20",
        "  it is incomplete: 1 of 3 files missing that .metadata promises: __2_0.distcp",
        f"  to do it: trainwarden checkpoints set-aside --apply {folder}/step_20",
        f"  the newest complete one is {folder}/step_10",
    ]
    assert everything(folder) == before


def test_it_is_renamed_as_a_whole_and_considered_no_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = everything(folder / "step_20")
    assert run("--apply", folder / "step_20") == 0
    assert "was set aside" in capsys.readouterr().out
    assert everything(folder / ".set-aside-20" / "step_20") == inside
    assert not (folder / "step_20").exists()
    best = newest(folder)
    assert best is not None
    assert best[0].step == 10
    # The next one of this step has another place.
    damaged(folder / "step_20")
    assert run("--apply", folder / "step_20") == 0
    assert everything(folder / ".set-aside-20.2" / "step_20") == inside == everything(folder / ".set-aside-20/step_20")


def test_a_file_takes_its_manifest_with_it(tmp_path: Path) -> None:
    file, manifest = tmp_path / "ckpt_7.safetensors", tmp_path / ".ckpt_7.safetensors.trainwarden-digests.json"
    file.write_bytes(formats.safetensors()[:-10])
    manifest.write_text("{}")
    age(tmp_path)
    assert run("--apply", file) == 0
    assert sorted(os.listdir(tmp_path / ".set-aside-7")) == [manifest.name, file.name]  # noqa: PTH208


def test_what_is_complete_or_not_proven_damaged_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "step_10", formats.dcp())
    (tmp_path / "step_9.pt").write_bytes(b"\x80\x02pickled")
    age(tmp_path)
    before = everything(tmp_path)
    assert [run("--apply", tmp_path / name) for name in ("step_10", "step_9.pt")] == [1, 1]
    complete, unknown = capsys.readouterr().err.splitlines()
    assert "only what is proven damaged is set aside, and it is complete" in complete
    assert "and it is unverifiable" in unknown
    assert everything(tmp_path) == before


@pytest.mark.parametrize("sign", ["a file that was just written", "a folder that was just changed", "a marker of NeMo"])
def test_a_save_that_may_be_going_on_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str], sign: str) -> None:
    path = folder / "step_20"
    if sign == "a file that was just written":
        os.utime(path / "__0_0.distcp")
    elif sign == "a folder that was just changed":
        os.utime(path)
    else:
        (folder / "step_20-unfinished").touch()
    assert run("--apply", path) == 1
    assert "a save may be going on" in capsys.readouterr().err
    assert path.is_dir()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("latest", "it is a link to step_20"),
        ("link_20", "its name is that of no checkpoint"),
        ("step_30", "it is a link to step_20"),
        ("step_40", "it is neither a file nor a folder"),
        (".set-aside-20", "its name is that of no checkpoint"),
        ("step_20.tmp", "its name is that of no checkpoint"),
        ("notes", "its name is that of no checkpoint"),
    ],
)
def test_links_pipes_and_other_names_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    for link in ("latest", "link_20", "step_30"):
        (folder / link).symlink_to("step_20")
    os.mkfifo(folder / "step_40")
    before = everything(folder)
    assert run("--apply", folder / name) == 1
    expected = "its name is that of no checkpoint" if name == "latest" else reason
    assert expected in capsys.readouterr().err
    assert everything(folder) == before


def test_what_is_not_there_and_what_is_in_s3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "step_1") == 2
    assert run(tmp_path / "none" / "step_1") == 2
    assert run("s3://bucket/step_1") == 1
    assert "it is in S3" in capsys.readouterr().err


def test_pointers_that_name_it_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "latest").write_text("step_20")
    (folder / "last").symlink_to("step_20")
    (folder / "latest_checkpointed_iteration.txt").write_text("10")
    assert run("--apply", folder / "step_20") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "a framework that follows it" in line]
    assert [line.split(":")[0].strip() for line in lines] == ["last names step_20", "latest names step_20"]
    assert (folder / "latest").read_text() == "step_20"


@cases("name", ["step_20\n; rm -rf x", "$(reboot) _step_20", "-step_20", b"\xff_step_20"])
def test_a_hostile_name_is_moved_as_it_is_and_shown_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str | bytes
) -> None:
    path = damaged(tmp_path / os.fsdecode(name))
    assert run(path) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if not line.isprintable()] == []
    [command] = [line for line in shown if "to do it" in line]
    to_copy = command.partition(": ")[2]
    assert to_copy == "the same with --apply" or shlex.split(to_copy)[-2:] == ["--apply", str(path)]
    assert run("--apply", path) == 0
    assert (tmp_path / ".set-aside-20" / path.name).is_dir()
    assert not path.exists()


@needs_root
def test_what_another_user_owns_is_left_to_that_user(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.chown(folder / "step_20", ANOTHER, ANOTHER)
    assert run("--apply", folder / "step_20") == 1
    assert f"it belongs to another user (uid {ANOTHER})" in capsys.readouterr().err
    os.chown(folder / "step_20", 0, 0)
    os.chown(folder, ANOTHER, ANOTHER)
    assert run("--apply", folder / "step_20") == 1
    assert "the folder around it belongs to another user" in capsys.readouterr().err
    assert (folder / "step_20").is_dir()
