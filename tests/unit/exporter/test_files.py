"""The end of a log, whatever writes it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.core.files import last_line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", None),
        (b"\n\r\n  \n", None),
        (b"only", "only"),
        (b"one\ntwo\n", "two"),
        (b"one\r\ntwo\r\n", "two"),
        (b" 10%|#   |\r 20%|##  |\r 30%|### |\r\n", " 30%|### |"),
        (b"ok\n\xff\xfe caf\xe9\n", "\ufffd\ufffd caf\ufffd"),
    ],
)
def test_the_last_line_is_the_last_that_is_not_empty(tmp_path: Path, content: bytes, expected: Any) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert last_line(log) == expected


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(2**40)  # sparse: a terabyte
        file.seek(2**40)
        file.write(b"\nthe end\n")
    assert last_line(log) == "the end"


def test_of_a_line_longer_than_the_end_no_half_word_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"token=" + b"s" * 100 + b" next words")
    assert last_line(log, limit=50) == "next words"


def test_a_log_is_found_through_its_own_link_but_not_through_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = tmp_path / "training_log_7.txt", tmp_path / "latest"
    target.write_text("hello\n")
    link.symlink_to(target)
    assert last_line(link) == "hello"
    monkeypatch.setattr(os, "fstat", _files_are_anothers(os.fstat))
    assert last_line(link) is None
    assert last_line(target) == "hello"


def test_a_log_that_becomes_a_link_at_the_last_moment_shows_nothing_of_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, log = tmp_path / "secret", tmp_path / "log"
    secret.write_text("of another\n")
    log.write_text("own\n")
    real = os.open
    swapped: list[Any] = []

    def swapping(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if not swapped:
            swapped.append(path)
            log.unlink()
            log.symlink_to(secret)
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "fstat", _files_are_anothers(os.fstat))
    monkeypatch.setattr(os, "open", swapping)
    assert last_line(log) is None
    assert swapped


def _files_are_anothers(real: Callable[[int], os.stat_result]) -> Callable[[int], os.stat_result]:
    def owned_by_another(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        fields = list(status)
        fields[4] += stat.S_ISREG(status.st_mode)
        return os.stat_result(fields)

    return owned_by_another


def test_what_is_no_log_has_no_last_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert last_line(tmp_path / "pipe") is None
    assert last_line(tmp_path) is None
    assert last_line(tmp_path / "nothing") is None
