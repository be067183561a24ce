"""Digests prove the content of a checkpoint, and find what changed in it."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from trainwarden.checkpoint import digests, newest, size_of, verify
from trainwarden.checkpoint.digests import Changed, manifest_path, write_manifest
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.cli import main
from trainwarden.deadline import DeadlineExceeded

_LARGE = 200_000


def plain_in(tmp_path: Path) -> Path:
    """A folder in no known layout, of files that do not say how long they are."""
    folder = write(tmp_path / "step_20", {f"rank-{rank}.pkl": os.urandom(_LARGE) for rank in range(3)})
    assert write_manifest(str(folder)) == (3, 3 * _LARGE)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return plain_in(tmp_path)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_digests_prove_what_no_layout_promises(plain: Path) -> None:
    several: list[dict[str, Any]] = [{}, {"whole": True}, {"trust": "none"}]
    for options in several:
        verdict = verify(plain, **options)
        assert verdict.answer == "complete", verdict
        assert verdict.evidence[0].startswith("each of its 3 files has the digest of when it was saved")
    best = newest(plain.parent)
    assert best is not None and best[1].answer == "complete"
    assert main(["checkpoints", "--whole", "--trust", "none", str(plain.parent)]) == 0


@pytest.mark.parametrize("place", [0, _LARGE - 1])
def test_a_file_that_changed_is_named(plain: Path, place: int) -> None:
    flip(plain / "rank-1.pkl", place)
    verdict = verify(plain, size_of(plain))
    assert (verdict.answer, verdict.evidence[0]) == (
        "incomplete",
        "1 of 3 files are not what their digests say: rank-1.pkl",
    )


def test_one_bit_anywhere_is_found_where_the_files_are_read_as_a_whole(plain: Path) -> None:
    flip(plain / "rank-1.pkl", 50_000)
    assert verify(plain).answer == "complete", "between the places that are compared"
    assert verify(plain, whole=True).answer == "incomplete"
    assert main(["checkpoints", "--whole", str(plain)]) == 1


def test_a_missing_file_and_a_shorter_one_are_found(plain: Path) -> None:
    os.truncate(plain / "rank-0.pkl", 100)
    assert verify(plain).answer == "incomplete"
    (plain / "rank-0.pkl").unlink()
    assert "1 of 3 files missing that its digests name: rank-0.pkl" in verify(plain).evidence[0]


def test_the_manifest_is_no_part_of_the_checkpoint(plain: Path) -> None:
    assert size_of(plain) == 3 * _LARGE
    copy = shutil.copytree(plain, plain.parent / "step_30")
    assert verify(copy, 3 * _LARGE).answer == "complete"
    assert verify(copy).answer == "complete"


def test_digests_of_a_file_lie_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "step_7.bin"
    path.write_bytes(os.urandom(_LARGE))
    assert verify(path).answer == "unverifiable"
    write_manifest(str(path))
    assert manifest_path(path) == tmp_path / ".step_7.bin.trainwarden-digests.json"
    found = newest(tmp_path)
    assert found is not None
    assert (verify(path).answer, found[1].answer, found[0].step) == ("complete", "complete", 7)
    os.utime(path, (1, 1))
    flip(path, 0)
    os.utime(path, (1, 1))
    assert verify(path).answer == "incomplete"


def test_a_save_over_the_checkpoint_is_not_held_to_the_digests_of_the_one_before(plain: Path) -> None:
    later = time.time() + 60
    for rank in range(3):
        (plain / f"rank-{rank}.pkl").write_bytes(os.urandom(_LARGE))
        os.utime(plain / f"rank-{rank}.pkl", (later, later))
    verdict = verify(plain, 3 * _LARGE)
    assert verdict.answer == "unverifiable"
    assert verdict.evidence[0] == "its digests are of an earlier save: every file has changed since"


def test_digests_settle_what_looked_like_a_save_that_was_interrupted(tmp_path: Path) -> None:
    folder = write(tmp_path / "step-10", formats.dcp())
    write_manifest(str(folder))
    later = time.time() + 3600
    os.utime(folder / "__0_0.distcp", (later, later))
    verdict = verify(folder)
    assert verdict.answer == "complete", verdict
    assert "and was read" in verdict.evidence[0], "a suspicion makes it read all"
    assert "1 of 3 shards are" in str(verdict), "it is shown still"


@cases("content", [b"", b"{", b"[]", b'{"time": 1}', b'{"files": {"a": 1}, "time": ""}', b"\xff"], plain=plain_in)
def test_a_manifest_that_cannot_be_read_changes_nothing(plain: Path, content: bytes) -> None:
    manifest_path(plain).write_bytes(content)
    verdict = verify(plain)
    assert verdict.answer == "unverifiable"
    assert "its manifest of digests cannot be read" in str(verdict)


def test_no_manifest_is_written_of_files_that_change(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = FolderTree.read

    def change(tree: FolderTree, path: str, start: int, length: int) -> bytes:
        if path == "rank-2.pkl":
            flip(plain / "rank-0.pkl", 0)
            os.utime(plain / "rank-0.pkl", (5, 5))
        return real(tree, path, start, length)

    monkeypatch.setattr(FolderTree, "read", change)
    with pytest.raises(Changed):
        write_manifest(str(plain))
    assert not manifest_path(plain).exists(), "the one of before is gone too"


def test_without_its_training_the_work_ends(plain: Path) -> None:
    with pytest.raises(DeadlineExceeded):
        write_manifest(str(plain), parent=os.getpid())
    assert not manifest_path(plain).exists()


def test_the_process_prints_how_it_ended(plain: Path, capsys: pytest.CaptureFixture[str], no_niceness: None) -> None:
    assert digests.main([str(os.getppid()), str(plain)]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": 3, "size_bytes": 3 * _LARGE}
    assert digests.main([str(os.getppid()), str(plain / "absent")]) == 1
    assert "problem" in json.loads(capsys.readouterr().out)


@pytest.fixture
def no_niceness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr("signal.signal", lambda *_: None)


def test_many_files_with_digests_cost_eight_short_reads_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {f"rank-{rank}.pkl": b"\7" * 50_000 for rank in range(200)}
    folder = write(tmp_path / "step_10", shards)
    write_manifest(str(folder))
    opened: list[int] = []
    read: list[int] = []

    def count(calls: list[int], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            calls.append(len(result) if isinstance(result, bytes) else 1)
            return result

        return call

    monkeypatch.setattr(os, "open", count(opened, os.open))
    monkeypatch.setattr(os, "pread", count(read, os.pread))
    assert verify(folder).answer == "complete"
    assert len(opened) <= 2 * 200 + 1
    assert sum(read) <= 200 * (8 * 4096 + 1024) + manifest_path(folder).stat().st_size
