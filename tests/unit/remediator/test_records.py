"""A record that lies on a file system that does not answer is unknown: it ends no run, and holds up no other one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.remediator.simulation import Simulation
from tests.waiting import wait_until
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe import records as module
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.records import Records

RUN = "run-1"


class DeadFolder:
    """Looks for `_complete` that never return for the runs `of`, as of a file server that is gone, until it is back."""

    def __init__(self) -> None:
        self.of = {RUN}
        self.back = threading.Event()
        self.asked: list[str] = []

    def __call__(self, folder: Path, _key: str, _started: float | None) -> None:
        self.asked.append(folder.name)
        if folder.name in self.of:
            self.back.wait()


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadFolder]:
    made = DeadFolder()
    monkeypatch.setattr(module, "current_completion", made)
    yield made
    made.back.set()


def reported(run_id: str) -> ReportedRun:
    return ReportedRun(run_id, 0, "sim:17:0")


def test_a_folder_that_does_not_answer_is_unknown_and_tried_again_once_it_has_answered(
    tmp_path: Path, dead: DeadFolder
) -> None:
    records = Records(tmp_path, timeout=0.05)
    found = [records.complete(reported(RUN)) for _ in range(3)]
    assert found == [Unknown(f"the folder of its record does not answer: {tmp_path / RUN}")] * 3
    assert dead.asked == [RUN], "each try would cost a thread that cannot be ended"
    assert isinstance(records.owner(RUN), Unknown), "nothing else of it is tried either"
    assert records.announce_restart(RUN, "sim:17:0", "stalled", "i") == (
        f"the restart was not announced: the folder of its record does not answer: {tmp_path / RUN}"
    )
    assert records.complete(reported("run-2")) is False
    dead.back.set()
    wait_until(lambda: records.complete(reported(RUN)) is False)


def test_however_many_folders_do_not_answer_the_others_are_read(tmp_path: Path, dead: DeadFolder) -> None:
    """As those of one of several file systems on which runs have their folders."""
    records = Records(tmp_path, timeout=0.2)
    dead.of = {f"run-{number}" for number in range(30)}
    assert all(isinstance(records.complete(reported(run_id)), Unknown) for run_id in dead.of)
    # It has little time by now, and may need more than one try beside other work of the machine.
    wait_until(lambda: records.complete(reported("another")) is False)


def test_where_all_folders_are_gone_no_more_threads_are_left_behind(tmp_path: Path, dead: DeadFolder) -> None:
    records = Records(tmp_path, timeout=0.01)
    dead.of = {f"run-{number}" for number in range(module._MAX_BLOCKED + 20)}
    found = [records.complete(reported(run_id)) for run_id in dead.of]
    assert all(isinstance(each, Unknown) for each in found)
    assert sum(each.name == "record" for each in threading.enumerate()) <= module._MAX_BLOCKED


def test_a_run_whose_folder_does_not_answer_is_left_and_the_others_are_restarted(
    tmp_path: Path, dead: DeadFolder
) -> None:
    sim = Simulation(tmp_path / "state", runs=2)
    sim.runs_dir = tmp_path
    sim.restart()
    sim.tick(60, every=5)
    assert [each.state for each in sim.store.of_run("run-2")] == [State.DONE]
    assert (sim.store.of_run(RUN), sim.our_starts) == ([], [])
    assert [each.waits_for for each in sim.store.pending()] == [
        f"the folder of its record does not answer: {tmp_path / RUN}"
    ]
    sim.clock.elapsed += 1800
    sim.tick(10, every=5)
    [page] = sim.store.escalations()
    assert page.reason.startswith("nothing could be done for 30 minutes: the folder of its record does not answer")
    dead.back.set()

    def is_restarted() -> bool:
        sim.tick(5)
        return bool(sim.our_starts)

    wait_until(is_restarted)
    sim.close()
