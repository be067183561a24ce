"""A follower reads every byte of a log once, whatever happens to its file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import opened_files
from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.opening import Refused, open_log


class Tail:
    """A follower, and all that it has read."""

    def __init__(self, folder: Path, name: str = "log.txt", first_read: int = 1 << 30) -> None:
        self.folder = folder
        self.path = folder / name
        self.follower = Follower(str(self.path), [str(folder)], first_read=first_read)

    def read(self, limit: int = 1 << 20) -> bytes:
        """What is new."""
        self.follower.poll()
        found = b""
        while piece := self.follower.read(limit):
            found += piece.data
            self.follower.consume(len(piece.data))
        return found

    def again(self) -> Tail:
        """Another follower that goes on where this one is, as after a restart."""
        other = Tail(self.folder, self.path.name)
        other.follower = Follower(str(self.path), [str(self.folder)], self.follower.position)
        self.follower.close()
        return other


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path)


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read_once(tail: Tail) -> None:
    add(tail.path, b"one\n")
    assert tail.read() == b"one\n"
    assert tail.read() == b""
    add(tail.path, b"two\n")
    assert tail.read(limit=2) == b"two\n"


def test_a_file_that_appears_late_is_read_from_its_beginning(tail: Tail) -> None:
    assert tail.read() == b""
    add(tail.path, b"one\n")
    assert tail.read() == b"one\n"


def test_what_is_not_consumed_comes_again_with_what_follows(tail: Tail) -> None:
    add(tail.path, b"one\nhalf")
    tail.follower.poll()
    piece = tail.follower.read(100)
    assert piece is not None
    assert piece.data == b"one\nhalf"
    tail.follower.consume(4)
    add(tail.path, b" a line\n")
    assert tail.read() == b"half a line\n"


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    tail.path.rename(tail.folder / "log.txt.1")
    add(tail.path, b"three\n")
    assert tail.read() == b"two\nthree\n"
    assert tail.follower.restarts == {"rotated": 1}


def test_a_writer_that_has_not_noticed_the_rename_is_still_read(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    tail.path.rename(tail.folder / "log.txt.1")
    tail.path.touch()
    add(tail.folder / "log.txt.1", b"two\n")
    assert tail.read() == b"two\n"
    add(tail.folder / "log.txt.1", b"three\n")
    add(tail.path, b"four\n")
    assert tail.read() == b"three\nfour\n"


def test_a_truncated_file_is_read_from_its_beginning(tail: Tail) -> None:
    add(tail.path, b"one and more\n")
    tail.read()
    tail.path.write_bytes(b"two\n")
    assert tail.read() == b"two\n"
    assert tail.follower.restarts == {"truncated": 1}


def test_a_file_that_has_grown_beyond_the_old_offset_after_it_was_cut_is_read_from_its_beginning(tail: Tail) -> None:
    add(tail.path, b"one\n" * 30)
    tail.read()
    text = b"two and three\n" * 30
    tail.path.write_bytes(text)
    assert tail.read() == text


def test_a_file_that_was_cut_and_has_grown_again_with_the_same_beginning_is_read_from_its_beginning(tail: Tail) -> None:
    banner = b"the same banner as ever\n" * 20
    add(tail.path, banner + b"one\n")
    tail.read()
    tail.path.write_bytes(banner + b"two and more\n")
    assert tail.read() == banner + b"two and more\n"


def test_what_was_written_before_a_copytruncate_is_read_from_the_copy(tail: Tail) -> None:
    add(tail.path, b"the first line of many\n" * 10)
    tail.read()
    add(tail.path, b"unread\n")
    (tail.folder / "log.txt.1").write_bytes(tail.path.read_bytes())
    os.truncate(tail.path, 0)
    add(tail.path, b"new\n")
    assert tail.read() == b"unread\nnew\n"


def test_a_hole_left_by_a_writer_that_does_not_append_is_passed_over(tail: Tail) -> None:
    with tail.path.open("wb", buffering=0) as writer:
        writer.write(b"x" * 100_000 + b"\n")
        tail.read()
        os.truncate(tail.path, 0)
        writer.write(b"after\n")
        found = tail.read()
    assert found.strip(b"\0") == b"after\n"
    assert len(found) < 8192


def test_a_link_that_is_turned_to_another_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "log.txt").symlink_to("a")
    tail = Tail(tmp_path)
    assert tail.read() == b"one\n"
    add(tmp_path / "a", b"two\n")
    (tmp_path / "b").write_bytes(b"three\n")
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").replace(tmp_path / "log.txt")
    assert tail.read() == b"two\nthree\n"


def test_a_removed_file_is_read_to_its_end_and_let_go(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    tail.path.unlink()
    assert tail.read() == b"two\n"
    assert tail.follower.identity is None
    add(tail.path, b"three\n")
    assert tail.read() == b"three\n"


def test_a_restart_goes_on_where_the_last_one_was(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    assert tail.again().read() == b"two\n"


def test_what_was_rotated_during_a_restart_is_found_under_its_new_name(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    tail.path.rename(tail.folder / "put_aside")
    add(tail.path, b"three\n")
    assert tail.again().read() == b"two\nthree\n"


def test_a_file_that_was_replaced_during_a_restart_is_read_from_its_beginning(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    tail.path.write_bytes(b"another one\n")
    other = tail.again()
    assert other.read() == b"another one\n"


def test_only_the_end_of_a_long_log_is_read_at_first_from_a_whole_line_on(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"0123456789\n" * 100)
    tail = Tail(tmp_path, first_read=25)
    assert tail.read() == b"0123456789\n" * 2
    assert tail.follower.skipped == 1100 - 22


def test_what_was_rotated_during_a_restart_is_read_though_no_new_file_has_begun(tail: Tail) -> None:
    add(tail.path, b"one\n")
    assert tail.read() == b"one\n"
    add(tail.path, b"two\n")
    renamed = tail.path.rename(tail.folder / "put_aside_1.txt")
    tail = tail.again()
    assert tail.read() == b"two\n"
    add(renamed, b"three\n")  # by a writer that has not noticed
    assert tail.read() == b"three\n"
    add(tail.path, b"four\n")
    assert tail.read() == b"four\n"


def test_a_file_that_rests_is_taken_up_again_when_it_grows_or_is_rotated(tail: Tail) -> None:
    add(tail.path, b"one\n")
    tail.read()
    tail.follower.close_idle()
    assert tail.follower.identity is None
    assert tail.read() == b""
    add(tail.path, b"two\n")
    tail.path.rename(tail.folder / "aside")
    add(tail.path, b"three\n")
    assert tail.read() == b"two\nthree\n"


def test_a_stale_handle_is_given_up_and_the_file_opened_again(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", _fails(errno.ESTALE))
        with pytest.raises(OSError, match="Stale"):
            tail.read()
    assert tail.follower.identity is None
    assert tail.read() == b"two\n"


def test_a_read_error_loses_nothing(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tail.path, b"one\n")
    tail.read()
    add(tail.path, b"two\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", _fails(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            tail.read()
    assert tail.read() == b"two\n"


def _fails(number: int) -> object:
    def fail(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_pipe_a_device_and_a_folder_are_refused_and_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opened_files(monkeypatch)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(Refused) as refusal:
            Tail(tmp_path, name).read()
        assert refusal.value.reason == "no_plain_file"
    assert opened == []


def test_a_link_out_of_the_folders_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret\n")
    (inside / "log.txt").symlink_to(outside / "secret")
    (inside / "sub").symlink_to(outside)
    for path in (inside / "log.txt", inside / "sub" / "secret"):
        with pytest.raises(Refused) as refusal:
            open_log(str(path), [str(inside)])
        assert refusal.value.reason == "outside"
    os.close(open_log(str(inside / "log.txt"), [str(inside), str(outside)]))
