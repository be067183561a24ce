"""The end of a log, whatever writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.users import ANOTHER, needs_root
from trainwarden.record.folder import LOG
from trainwarden_exporter.core.files import last_line
from trainwarden_exporter.core.owned_folder import OwnedFolder


def log_in(tmp_path: Path) -> Path:
    """Where the log of a run is."""
    path = tmp_path / "run" / LOG
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_in(tmp_path)


def end_of(log: Path, limit: int = 16384) -> str | None:
    with OwnedFolder.opened(log.parent.parent) as files:
        return last_line(files, limit)


@cases(
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
    log=log_in,
)
def test_the_last_line_is_the_last_that_is_not_empty(log: Path, content: bytes, expected: Any) -> None:
    log.write_bytes(content)
    assert end_of(log) == expected


def test_only_the_end_of_a_large_log_is_read(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(2**40)  # sparse: a terabyte
        file.seek(2**40)
        file.write(b"\nthe end\n")
    assert end_of(log) == "the end"


def test_of_a_line_longer_than_the_end_no_half_word_is_shown(log: Path) -> None:
    log.write_bytes(b"token=" + b"s" * 100 + b" next words")
    assert end_of(log, limit=50) == "next words"


@pytest.mark.parametrize("where", ["training_log_7.txt", "../../elsewhere.txt"])
def test_a_log_is_found_through_a_link_of_its_owner(log: Path, where: str) -> None:
    target = log.parent / where
    target.write_text("hello\n")
    log.symlink_to(where)
    assert end_of(log) == "hello"
    log.unlink()
    log.symlink_to(target)
    assert end_of(log) == "hello"


@needs_root
def test_nothing_of_another_user_is_found_through_a_link(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text("of another\n")
    target.chmod(0o600)
    log.symlink_to(target)
    os.chown(log.parent.parent, ANOTHER, ANOTHER)
    os.chown(log, ANOTHER, ANOTHER, follow_symlinks=False)
    assert end_of(log) is None
    os.chown(target, ANOTHER, ANOTHER)
    assert end_of(log) == "of another"


@needs_root
def test_nothing_of_another_user_is_found_through_a_folder_that_is_a_link(log: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim" / LOG
    victim.parent.mkdir(parents=True)
    victim.write_text("of another\n")
    log.parent.rmdir()
    log.parent.symlink_to(victim.parent)
    os.chown(log.parent.parent, ANOTHER, ANOTHER)
    assert end_of(log) is None


@needs_root
def test_nothing_of_another_user_is_found_at_a_hard_link(log: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another\n")
    secret.chmod(0o600)
    os.link(secret, log)
    os.chown(log.parent.parent, ANOTHER, ANOTHER)
    assert end_of(log) is None


def test_what_is_no_log_has_no_last_line(log: Path) -> None:
    assert end_of(log) is None
    os.mkfifo(log)
    assert end_of(log) is None
    log.unlink()
    log.mkdir()
    assert end_of(log) is None
