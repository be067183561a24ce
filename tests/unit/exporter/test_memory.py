"""Where the memory of a service runs out, its main process ends before the child that calls a driver."""

from __future__ import annotations

from pathlib import Path

from tests.cases import cases
from trainwarden_exporter.core.memory import hide_from_oom_killer, offer_to_oom_killer


@cases(("service", "parent", "child"), [(-500, 0, -500), (-900, -400, -900), (-100, 0, -500)])
def test_the_child_keeps_the_protection_that_the_parent_gives_up(
    tmp_path: Path, service: int, parent: int, child: int
) -> None:
    score = tmp_path / "oom_score_adj"
    score.write_text(f"{service}\n")
    offer_to_oom_killer(score)
    assert int(score.read_text()) == parent
    hide_from_oom_killer(score)  # a child inherits it
    assert int(score.read_text()) == child


@cases("service", [0, 300, 1000])
def test_no_process_offers_itself_to_the_shortage_of_a_whole_machine(tmp_path: Path, service: int) -> None:
    score = tmp_path / "oom_score_adj"
    score.write_text(f"{service}\n")
    offer_to_oom_killer(score)
    assert int(score.read_text()) == service


def test_without_the_file_or_the_right_nothing_happens(tmp_path: Path) -> None:
    for each in (offer_to_oom_killer, hide_from_oom_killer):
        each(tmp_path / "absent")
        each(tmp_path)
    assert not list(tmp_path.iterdir())
