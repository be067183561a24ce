"""Records of /dev/kmsg, read from files and pipes that hold such."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.nodes.kmsg import record
from trainwarden_exporter.collectors.kernel.log import KernelLogUnreadable, Kmsg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_bytes(record(7, "first", priority=6, microseconds=1_500_000) + record(8, "second"))
    return path


def test_the_first_call_gives_what_the_ring_holds_and_the_next_what_is_new(kmsg: Path) -> None:
    log = Kmsg(kmsg)
    first = log.read()
    assert [(line.sequence, line.logged, line.level, line.text) for line in first] == [
        (7, 1.5, 6, "first"),
        (8, 5.0, 3, "second"),
    ]
    assert log.read() == []
    with kmsg.open("ab") as stream:
        stream.write(record(9, "third"))
    assert [line.text for line in log.read()] == ["third"]
    log.close()


def test_what_continues_a_record_is_no_line_of_its_own(kmsg: Path) -> None:
    kmsg.write_bytes(record(1, "a b") + b" SUBSYSTEM=pci\n DEVICE=+pci:0000:10:1c.0\n" + record(2, "c"))
    assert [line.text for line in Kmsg(kmsg).read()] == ["a b", "c"]


def test_escaped_bytes_are_what_they_stood_for(kmsg: Path) -> None:
    kmsg.write_bytes(record(1, r"caf\xc3\xa9 \x5cx a\x0ab"))
    assert [line.text for line in Kmsg(kmsg).read()] == ["café \\x a\nb"]


def test_half_a_record_waits_for_its_other_half(kmsg: Path) -> None:
    kmsg.write_bytes(record(1, "whole") + b"3,2,50000")
    log = Kmsg(kmsg)
    assert [line.text for line in log.read()] == ["whole"]
    with kmsg.open("ab") as stream:
        stream.write(b"00,-;halved\n")
    assert [line.text for line in log.read()] == ["halved"]
    log.close()


def test_lines_that_the_ring_dropped_are_counted(kmsg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = BlockingIOError()
    answers: Iterator[bytes | OSError] = iter([record(10, "a"), again, BrokenPipeError(), record(25, "b"), again])

    def read(descriptor: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    log = Kmsg(kmsg)
    monkeypatch.setattr(os, "read", read)
    assert [line.text for line in log.read()] == ["a"]
    assert log.lost == 0, "what was said before we came is not lost"
    assert [line.text for line in log.read()] == ["b"]
    assert log.lost == 14


def test_a_pipe_without_lines_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    log = Kmsg(path)
    assert log.read() == []
    writer = os.open(path, os.O_WRONLY)
    try:
        assert log.read() == []
        os.write(writer, record(1, "said"))
        assert [line.text for line in log.read()] == ["said"]
    finally:
        os.close(writer)
        log.close()


def test_a_line_has_the_time_at_which_the_kernel_wrote_it(kmsg: Path) -> None:
    ago = min(3000.0, time.monotonic() / 2)  # the machine may have booted a moment ago
    kmsg.write_bytes(
        record(1, "x", microseconds=int((time.monotonic() - ago) * 1e6)) + record(2, "y", microseconds=10**17)
    )
    past, ahead = Kmsg(kmsg).read()
    assert past.time == pytest.approx(time.time() - ago, abs=60.0)
    assert ahead.time <= time.time()


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EPERM, "dmesg_restrict"), (errno.ENOENT, "does not exist here"), (errno.EIO, "Input/output error")],
)
def test_a_log_that_cannot_be_read_gives_the_reason(
    kmsg: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(KernelLogUnreadable, match=f"{kmsg}: .*{reason}"):
        Kmsg(kmsg).read()


def test_a_log_that_was_opened_anew_gives_no_line_twice(kmsg: Path) -> None:
    log = Kmsg(kmsg)
    assert len(log.read()) == 2
    log.close()
    assert log.read() == []
    log.close()


def test_a_line_was_logged_since_the_log_was_last_read_to_its_end(kmsg: Path) -> None:
    """The clock of the log is not adjusted: after months it is minutes off, here 60 s behind."""
    now = [1000.0]
    log = Kmsg(kmsg, lambda: now[0])
    log.read()
    logged = []
    for number, (now[0], said) in enumerate([(1010.0, 940.0), (1020.0, 955.0), (1030.0, 2000.0)]):
        with kmsg.open("ab") as stream:
            stream.write(record(9 + number, "x", microseconds=int(said * 1e6)))
        logged += [(line.earliest, line.logged) for line in log.read()]
    log.close()
    assert logged == [(1000.0, 1000.0), (1010.0, 1015.0), (1020.0, 1030.0)]


def test_lines_that_a_process_wrote_are_left_out_and_are_not_lost(kmsg: Path) -> None:
    kmsg.write_bytes(record(1, "a") + record(2, "forged", priority=1 * 8 + 3) + record(3, "b"))
    log = Kmsg(kmsg)
    assert [line.text for line in log.read()] == ["a", "b"]
    assert log.lost == 0
