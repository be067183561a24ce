"""A table that is one test hides no wrong row."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.cases import cases


def test_all_wrong_rows_are_listed_and_no_other() -> None:
    @cases("one, other", [("same", "same"), ("left", "right"), ("up", "down")])
    def compare(one: str, other: str) -> None:
        assert one == other

    with pytest.raises(AssertionError, match="2 of 3 rows are wrong") as failure:
        compare()
    assert "left" in str(failure.value)
    assert "up" in str(failure.value)
    assert "same" not in str(failure.value)


def test_any_exception_makes_a_row_wrong_and_the_next_is_tested() -> None:
    tested = []

    @cases("number", [0, 1], ids=["nought", "one"])
    def divide(number: int) -> None:
        tested.append(number)
        with pytest.raises(ZeroDivisionError):
            1 / number

    with pytest.raises(AssertionError, match=r"one\n.*DID NOT RAISE"):
        divide()
    assert tested == [0, 1]


@cases("value", ["first", "second"])
def test_a_row_finds_nothing_of_the_row_before(
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert list(tmp_path.iterdir()) == []
    assert "OF_A_ROW" not in os.environ
    assert (capsys.readouterr().out, caplog.text) == ("", "")
    (tmp_path / value).touch()
    monkeypatch.setenv("OF_A_ROW", value)
    print(value)
    logging.getLogger("a_row").warning(value)


@cases("value", ["first", "second"], file=lambda folder: folder / "file")
def test_what_is_made_for_a_row_is_made_in_a_folder_of_its_own(value: str, file: Path) -> None:
    assert not file.exists()
    file.touch()


def test_a_table_without_rows_or_with_an_odd_row_is_refused() -> None:
    with pytest.raises(AssertionError, match="empty"):
        cases("value", [])
    with pytest.raises(AssertionError, match="too many"):
        cases("one, other", [(1, 2), (1, 2, 3)])
