"""A sentinel speaks for its own attempt and for no other."""

import os
from pathlib import Path

import pytest

from tests.unit.library.looking import (
    announced_restart,
    current_completion,
    current_error,
    read_metadata,
    read_sentinel,
)
from trainwarden.record.folder import write_json
from trainwarden.record.schema import shorten
from trainwarden.record.sentinels import Sentinel
from trainwarden.record.store import RecordStore
from trainwarden.taxonomy import FAILURES

OLD, NEW = "slurm:1:0", "slurm:1:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose second attempt began at the time 2000."""
    attempts = [{"attempt": 0, "key": OLD}, {"attempt": 1, "key": NEW}]
    write_json(
        tmp_path / "metadata.json",
        {"status": "running", "attempt": 1, "attempt_key": NEW, "attempts": attempts},
    )
    return tmp_path


def _plain(path: Path, text: str, time: float) -> None:
    path.write_text(text)
    os.utime(path, (time, time))


def test_a_failure_is_found_by_its_own_attempt_only(folder: Path) -> None:
    RecordStore(folder).record_failure(key=NEW, failure=FAILURES["host_oom"], message="no memory", rank=3, exit_code=1)
    error = current_error(folder, NEW, 0)
    assert (error.message, error.error_type, error.attempt, error.rank, error.exit_code) == (
        "no memory",
        "host_oom",
        1,
        3,
        1,
    )
    assert error.hint == FAILURES["host_oom"].hint
    assert current_error(folder, "slurm:1:2", 0) is None


def test_of_two_ranks_that_fail_the_first_is_kept(folder: Path) -> None:
    assert RecordStore(folder).record_failure(key=NEW, failure=FAILURES["host_oom"], message="first")
    assert not RecordStore(folder).record_failure(key=NEW, failure=FAILURES["peer_reset"], message="second")
    assert current_error(folder, NEW, 0).message == "first"
    assert sorted(path.name for path in folder.iterdir()) == ["_error", "metadata.json"]


def test_an_old_attempt_that_fails_late_does_not_stain_its_successor(folder: Path) -> None:
    RecordStore(folder).record_failure(key=OLD, failure=FAILURES["peer_reset"], message="late")
    assert current_error(folder, NEW, 0) is None
    assert read_sentinel(folder / "_error.0").message == "late"


def test_an_old_attempt_that_fails_late_does_not_replace_the_successors_own_failure(folder: Path) -> None:
    RecordStore(folder).record_failure(key=NEW, failure=FAILURES["host_oom"], message="mine")
    RecordStore(folder).record_failure(key=OLD, failure=FAILURES["peer_reset"], message="late")
    assert current_error(folder, NEW, 0).message == "mine"


def test_a_rank_that_fails_before_rank_0_has_begun_moves_the_old_failure_away(folder: Path) -> None:
    RecordStore(folder).record_failure(key=NEW, failure=FAILURES["host_oom"], message="of the attempt before")
    third = "slurm:1:2"
    assert RecordStore(folder).record_failure(key=third, failure=FAILURES["peer_reset"], message="of a third rank")
    assert current_error(folder, third, 0).message == "of a third rank"
    assert read_sentinel(folder / "_error.1").message == "of the attempt before"


def test_plain_text_counts_only_if_it_is_newer_than_the_attempt(folder: Path) -> None:
    _plain(folder / "_error", "it broke\n", 1999)
    assert current_error(folder, NEW, 2000) is None
    _plain(folder / "_error", "it broke\n", 2001)
    assert current_error(folder, NEW, 2000).message == "it broke"


def test_of_a_plain_traceback_the_message_is_its_last_line(folder: Path) -> None:
    _plain(folder / "_error", "Traceback (most recent call last):\n  File x\nValueError: no\n", 2001)
    error = current_error(folder, NEW, 2000)
    assert error.message == "ValueError: no"
    assert "File x" in error.traceback


def test_a_plain_completion_is_a_completion(folder: Path) -> None:
    _plain(folder / "_complete", "", 2001)
    assert isinstance(current_completion(folder, NEW, 2000), Sentinel)


def test_a_sentinel_that_is_no_text_is_read_without_an_exception(folder: Path) -> None:
    (folder / "_error").write_bytes(b"\xff\xfe broken \x00")
    assert "broken" in current_error(folder, NEW, None).message


def test_a_million_characters_are_cut_and_keep_both_ends(folder: Path) -> None:
    text = "begin" + "x" * 10**6 + "end"
    RecordStore(folder).record_failure(key=NEW, failure=FAILURES["user_exception"], message=text)
    message = current_error(folder, NEW, 0).message
    assert len(message) <= 4000
    assert message.startswith("begin")
    assert message.endswith("end")
    assert shorten("short", 10) == "short"


def test_an_announcement_is_for_one_attempt(folder: Path) -> None:
    RecordStore(folder).announce_restart(NEW, "stalled", "intent-7")
    assert announced_restart(folder, NEW).intent == "intent-7"
    assert announced_restart(folder, OLD) is None


def test_a_new_attempt_puts_the_old_sentinels_aside_under_their_number(folder: Path) -> None:
    RecordStore(folder).record_completion(key=NEW, step=9)
    RecordStore(folder).record_failure(key=NEW, failure=FAILURES["host_oom"], message="m")
    RecordStore(folder).set_sentinels_aside(read_metadata(folder), "slurm:1:2", begun_before=False)
    assert sorted(path.name for path in folder.iterdir()) == ["_complete.1", "_error.1", "metadata.json"]


def test_what_a_rank_of_the_new_attempt_wrote_already_stays(folder: Path) -> None:
    RecordStore(folder).record_failure(key="slurm:1:2", failure=FAILURES["host_oom"], message="early")
    RecordStore(folder).set_sentinels_aside(read_metadata(folder), "slurm:1:2", begun_before=False)
    assert current_error(folder, "slurm:1:2", 0).message == "early"


def test_a_failure_without_a_record_makes_one(tmp_path: Path) -> None:
    RecordStore(tmp_path / "new").record_failure(key=NEW, failure=FAILURES["killed"], message="died at once")
    assert current_error(tmp_path / "new", NEW, None).failure == "killed"
