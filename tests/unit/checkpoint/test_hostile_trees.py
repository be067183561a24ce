"""Reading any folder ends, opens plain files only, and raises nothing."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from trainwarden.checkpoint import find, folder_tree, newest, size_of, verify
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.checkpoint.verify import run_with_timeout
from trainwarden.deadline import Deadline


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write(tmp_path / "step_10", formats.dcp())


def test_links_in_circles_end(whole: Path) -> None:
    (whole / "sub").mkdir()
    (whole / "sub" / "up").symlink_to("..")
    (whole / "self").symlink_to("self")
    assert verify(whole).answer == "unverifiable", "a link leads nowhere"
    (whole / "self").unlink()
    assert verify(whole).answer == "complete"


def test_shards_behind_links_count_and_a_broken_link_does_not(whole: Path, tmp_path: Path) -> None:
    shard = whole / "__0_0.distcp"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert verify(whole).answer == "complete"
    (tmp_path / "elsewhere").unlink()
    assert verify(whole).answer == "incomplete"


def test_a_pipe_where_a_file_was_promised_is_not_opened(whole: Path) -> None:
    for name in ("__0_0.distcp", ".metadata"):
        (whole / name).unlink()
        os.mkfifo(whole / name)
        assert verify(whole).answer == "incomplete"
    os.mkfifo(whole.parent / "step_20.pt")
    os.mkfifo(whole.parent / "latest")
    assert [one.step for one in find(whole.parent)] == [10]
    assert verify(whole.parent / "step_20.pt").answer == "unverifiable"
    assert verify(Path(os.devnull)).answer == "unverifiable"


def test_a_pipe_that_has_taken_the_place_of_a_file_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "."):
        with pytest.raises(OSError, match="no plain file"):
            FolderTree(str(tmp_path)).read(path, 0, 9)


def test_names_that_are_no_text_are_shown_so_that_any_terminal_takes_them(tmp_path: Path) -> None:
    name = os.fsdecode(b"step_10\xff\n\x1b[31m")
    folder = write(tmp_path / name, {os.fsdecode(b"w\xfe.pt"): b"\0" * 100})
    assert find(tmp_path)[0].path == str(folder)
    found = newest(tmp_path)
    assert found is not None
    assert found[1].answer == "incomplete"
    assert str(found[1]).isprintable()
    str(found[1]).encode()


def test_evidence_stays_short_however_much_there_is(tmp_path: Path) -> None:
    files = {f"{number}-{'x' * 200}.pt": b"\0" * 10 for number in range(300)}
    verdict = verify(write(tmp_path / "step_10", files))
    assert verdict.answer == "incomplete"
    assert len(verdict.evidence) <= 12
    assert max(map(len, verdict.evidence)) <= 240


def test_a_folder_that_may_not_be_read_leaves_it_unverifiable(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whom no permission stops: the system's answer is played instead."""
    (whole / "sub").mkdir()
    forbid(monkeypatch, "scandir", lambda path: str(path).rstrip("/").endswith("sub"))
    verdict = verify(whole)
    assert verdict.answer == "unverifiable"
    assert "sub/ cannot be read: Permission denied" in verdict.evidence[0]


def test_what_was_promised_in_a_folder_that_may_not_be_read_need_not_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = b'{"weight_map": {"a": "sub/model-00001-of-00001.safetensors"}}'
    folder = write(tmp_path / "export", {"config.json": b"{}", "model.safetensors.index.json": index})
    (folder / "sub").mkdir()
    assert verify(folder).answer == "incomplete"
    forbid(monkeypatch, "scandir", lambda path: str(path).rstrip("/").endswith("sub"))
    assert verify(folder).answer == "unverifiable"


def test_a_file_that_may_not_be_read_leaves_it_unverifiable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step_10.pt"
    path.write_bytes(formats.torch_file())
    forbid(monkeypatch, "open", lambda opened: str(opened) == str(path))
    assert verify(path).answer == "unverifiable"
    assert verify(path, path.stat().st_size).answer == "complete"


def test_what_is_absent_where_not_all_was_seen_need_not_be_missing(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole / "__0_0.distcp").unlink()
    monkeypatch.setattr(folder_tree, "MAX_FILES", 2)
    verdict = verify(whole)
    assert verdict.answer == "unverifiable"
    assert "more than 2 files" in verdict.evidence[0]


def test_files_that_vanish_while_they_are_looked_at_raise_nothing(whole: Path) -> None:
    stop = threading.Event()
    data = (whole / "__0_0.distcp").read_bytes()

    def disturb() -> None:
        while not stop.is_set():
            (whole / "__0_0.distcp").unlink()
            (whole / "__0_0.distcp").write_bytes(data)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        answers = {verify(whole).answer for _ in range(200)}
    finally:
        stop.set()
        thread.join()
    assert answers <= {"complete", "incomplete", "unverifiable"}
    assert verify(whole).answer == "complete"


@pytest.mark.slow
def test_a_file_system_that_does_not_answer_holds_nobody(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    real = os.stat

    def hang(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(whole.parent)):
            answer.wait()
        return real(path, **options)

    monkeypatch.setattr(os, "stat", hang)
    try:
        verdict = verify(whole, seconds=0.1)
        assert verdict.answer == "unverifiable"
        assert "gave up after 0.1 s" in verdict.evidence[0]
        found = newest(whole.parent, seconds=0.1)
        assert found is not None, "none would be a reason to start from the beginning"
        assert (found[0].step, found[1].answer) == (None, "unverifiable")
    finally:
        answer.set()


def test_time_that_is_used_up_is_reported(whole: Path) -> None:
    tree = FolderTree(str(whole))
    listing = tree.walk("", Deadline(0))
    assert listing.errors == ["gave up after 0 s"]


def test_an_error_of_ours_is_no_error_of_the_training() -> None:
    def fail() -> str:
        raise LookupError("surprise")

    assert "surprise" in run_with_timeout(5, fail, lambda why: why)


def test_the_size_of_a_folder_counts_plain_files(whole: Path) -> None:
    expected = sum(map(len, formats.dcp().values()))
    (whole / "latest").symlink_to(".metadata")
    assert size_of(whole) == expected
    assert verify(whole, expected).answer == "complete"
    assert size_of(Path("\0")) is None


def forbid(monkeypatch: pytest.MonkeyPatch, call: str, which: Callable[[Any], bool]) -> None:
    real = getattr(os, call)

    def refuse(path: Any, *rest: Any, **options: Any) -> Any:
        if which(path):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, call, refuse)
