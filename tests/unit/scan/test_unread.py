"""A log that cannot be read at all has no verdict."""

from pathlib import Path

import pytest

from trainwarden.cli import main


@pytest.mark.parametrize("name", ["absent.log", "."])
def test_of_what_is_not_there_only_its_absence_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["scan", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and str(tmp_path) in err


def test_of_two_logs_the_one_that_is_there_has_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.log"
    there.write_text("all is well\n")
    assert main(["scan", str(tmp_path / "absent.log"), str(there)]) == 2
    assert capsys.readouterr().out == f"{there}: no failure found\n"
