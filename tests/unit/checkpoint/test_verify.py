"""A checkpoint is complete, incomplete or unverifiable, with the evidence."""

import os
from pathlib import Path

import numpy as np
import pytest

from trainwarden.checkpoint import choose, size_of, verify
from trainwarden.record.progress import Checkpoint


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    path = tmp_path / "step-10.npz"
    np.savez(path, weights=np.arange(1000))
    return path


def test_a_file_of_its_recorded_size_is_complete(npz: Path) -> None:
    assert verify(npz, npz.stat().st_size).answer == "complete"


def test_a_whole_zip_file_is_complete_without_a_recorded_size(npz: Path) -> None:
    assert verify(npz).answer == "complete"


def test_a_file_that_does_not_state_how_long_it_is_is_unverifiable_without_a_recorded_size(tmp_path: Path) -> None:
    path = tmp_path / "step-10.pt"
    path.write_bytes(b"\x80\x02pickled")
    assert verify(path).answer == "unverifiable"


def test_a_truncated_file_is_incomplete_with_or_without_a_recorded_size(npz: Path) -> None:
    whole = npz.stat().st_size
    os.truncate(npz, whole // 2)
    assert verify(npz, whole).answer == "incomplete"
    said = verify(npz)
    assert said.answer == "incomplete"
    assert "zip" in said.evidence[0]


def test_right_size_and_wrong_content_is_incomplete(npz: Path) -> None:
    size = npz.stat().st_size
    npz.write_bytes(b"\0" * size)
    assert verify(npz, size).answer == "incomplete"


def test_an_old_pt_file_is_judged_by_its_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"\x80\x02pickled")
    assert verify(path, 9).answer == "complete"


def test_a_folder_has_the_size_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "two").write_bytes(b"123")
    (tmp_path / "a" / "latest").symlink_to("one")
    assert size_of(tmp_path / "a") == 8
    assert verify(tmp_path / "a", 8).answer == "complete"
    (tmp_path / "a" / "b" / "two").unlink()
    assert verify(tmp_path / "a", 8).answer == "incomplete"


def test_what_has_grown_is_unverifiable_and_still_better_than_to_start_over(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "shard").write_bytes(b"12345")
    (tmp_path / "a" / "marker").write_bytes(b"1")
    verdict = verify(tmp_path / "a", 5)
    assert (verdict.answer, verdict.evidence[0]) == (
        "unverifiable",
        "it has 6 bytes, more than the 5 when it was saved",
    )
    grown = Checkpoint(str(tmp_path / "a"), size_bytes=5)
    assert choose([grown])[0] is grown


def test_what_is_empty_or_absent_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    answers = [verify(tmp_path / name).answer for name in ("empty", "folder", "absent")]
    assert answers == ["incomplete"] * 3


def test_a_complete_one_is_chosen_before_a_newer_unverifiable_one(npz: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.write_bytes(b"x")
    unproven, proven = Checkpoint(str(newer)), Checkpoint(str(npz), size_bytes=npz.stat().st_size)
    broken = Checkpoint(str(tmp_path / "absent"), size_bytes=3)
    chosen, passed_over = choose([broken, unproven, proven])
    assert chosen is proven
    assert [line.split(" is ")[1].split(":")[0] for line in passed_over] == ["incomplete", "unverifiable"]
    assert choose([broken, unproven])[0] is unproven
    assert choose([broken])[0] is None
