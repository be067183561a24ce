"""Files that keep what a command printed."""

import os
from pathlib import Path

import pytest

from trainwarden.exec.log_file import LogFile, put_aside


def test_past_its_limit_it_begins_anew_and_keeps_one(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "logs/l.txt", limit=10)
    for number in range(5):
        log.write(b"%d" % number * 10)
    log.close()
    assert (tmp_path / "logs/l.txt").read_bytes() == b"4" * 10
    assert (tmp_path / "logs/l.txt.1").read_bytes() == b"3" * 10
    assert len(list((tmp_path / "logs").iterdir())) == 2


def test_what_cannot_be_written_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    log = LogFile(tmp_path / "full")
    log.write(b"lost")
    log.write(b"lost too")
    log.close()
    assert (log.write_errors, log.last_error) == (2, "No space left on device")


def test_a_file_that_cannot_be_opened_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        LogFile(tmp_path)


def test_the_logs_of_the_last_attempts_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "training_log_latest.txt"
    for number in range(6):
        log.write_text(f"{number}")
        os.utime(log, (1000 + number, 1000 + number))
        put_aside(log, number)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["3", "4", "5"]
    put_aside(log, 7)
