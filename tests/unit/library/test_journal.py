"""A journal holds whole lines only, also on a full or failing disk."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.small_disk import SmallDisk, small_disk
from trainwarden.training import journal as journals
from trainwarden.training.journal import JournalFile


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def _line(number: int, size: int = 0) -> bytes:
    return json.dumps({"number": number, "text": "x" * size}).encode() + b"\n"


def _numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines() if line]


def test_lines_are_appended_in_their_order(tmp_path: Path) -> None:
    for first in (0, 3):
        journal = JournalFile(tmp_path / "j")
        for number in range(first, first + 3):
            journal.add(_line(number))
        assert journal.flush() == [tmp_path / "j"]
        assert journal.flush() == []
    assert _numbers(tmp_path / "j") == list(range(6))


def test_a_journal_is_rotated_and_one_older_file_is_kept(tmp_path: Path) -> None:
    path, older = tmp_path / "j", tmp_path / "j.1"
    journal = JournalFile(path)
    changed = []
    for number in range(200):
        journal.add(_line(number, 60_000))
        changed.append(journal.flush())
    assert path.stat().st_size <= journals.ROTATE_BYTES
    assert older.stat().st_size <= journals.ROTATE_BYTES
    kept = _numbers(older) + _numbers(path)
    assert kept == list(range(kept[0], 200))
    assert [path, older] in changed
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["j", "j.1"]


def test_a_killed_writers_last_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(_line(1) + _line(2)[:9])
    journal = JournalFile(path)
    journal.add(_line(3))
    journal.flush()
    assert path.read_bytes().split(b"\n") == [_line(1)[:-1], _line(2)[:9], _line(3)[:-1], b""]


def test_a_folder_that_disappears_comes_back(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run" / "ranks" / "j")
    for number in (1, 2):
        journal.add(_line(number))
        journal.flush()
        (tmp_path / "run").rename(tmp_path / f"gone-{number}")
    assert _numbers(tmp_path / "gone-2" / "ranks" / "j") == [2]


@pytest.mark.process
def test_a_full_disk_loses_no_line_that_waits_and_leaves_no_part_of_one(disk: SmallDisk) -> None:
    journal = JournalFile(disk.path / "j")
    journal.add(_line(0))
    journal.flush()
    disk.fill()
    for number in range(1, 20):
        journal.add(_line(number, 500))
        with pytest.raises(OSError, match=r"No space left|File too large|could be written"):
            for _ in range(10):
                journal.flush()
                journal.add(_line(number, 500))
    assert (disk.path / "j").read_bytes().endswith(b"\n")
    disk.free()
    journal.flush()
    numbers = _numbers(disk.path / "j")
    assert (numbers[0], numbers[-1]) == (0, 19)
    assert sorted(set(numbers)) == list(range(20))
    assert journal.dropped == 0


def test_a_part_of_a_line_is_taken_back_unless_somebody_wrote_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[: len(data) // 2])

    def half_and_a_stranger(descriptor: int, data: bytes) -> int:
        written = half(descriptor, data)
        with path.open("ab") as file:
            file.write(b"\n" + _line(8))
        return written

    for behaviour, left in ((half, b""), (half_and_a_stranger, _line(1)[: len(_line(1)) // 2] + b"\n" + _line(8))):
        path.write_bytes(b"")
        journal = JournalFile(path)
        journal.add(_line(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", behaviour)
            with pytest.raises(OSError, match="bytes could be written"):
                journal.flush()
        assert path.read_bytes() == left
        journal.flush()
        assert path.read_bytes() == left + _line(1)


def test_what_waits_is_bounded_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "j")
    for number in range(100_000):
        journal.add(_line(number, 100))
    assert journal.is_full()
    journal.flush()
    numbers = _numbers(tmp_path / "j")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) + journal.dropped == 100_000
    assert (tmp_path / "j").stat().st_size < journals.MAX_WAITING_BYTES
    assert not journal.is_full()


@cases("kind", ["pipe", "link", "folder"])
def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "j"
    make: dict[str, Any] = {
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
        "folder": path.mkdir,
    }
    make[kind]()
    journal = JournalFile(path)
    journal.add(_line(1))
    with pytest.raises(OSError, match=r"plain file|symbolic links|directory"):
        journal.flush()
    assert not (tmp_path / "elsewhere").exists()
