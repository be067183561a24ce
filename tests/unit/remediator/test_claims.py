"""Records are written by users: what one claims counts only as far as the scheduler confirms it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulation import Simulation
from tests.unit.remediator.test_evidence import record, sample
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import FILE
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import ReportedRun, read_run


@pytest.mark.parametrize("own", [True, False])
def test_the_record_of_another_user_ends_no_job(simulation: Simulation, tmp_path: Path, own: bool) -> None:
    record_folder = tmp_path / "runs" / "run-1"
    record_folder.mkdir(parents=True)
    (record_folder / "metadata.json").write_text("{}")
    if os.geteuid() == 0:
        os.chown(record_folder / "metadata.json", 4711, -1)
    writer = (record_folder / "metadata.json").stat().st_uid
    simulation.runs_dir = tmp_path / "runs"
    simulation.restart()
    simulation.cluster.user = writer if own else writer + 1
    [incident] = simulation.settle()
    assert simulation.our_starts == ([0] if own else [])
    if not own:
        assert incident.state is State.SUPPRESSED
        assert incident.reason == f"the record is written by uid {writer}, and the job belongs to uid {writer + 1}"


def test_a_record_with_a_forged_later_start_does_not_hide_the_one_that_the_scheduler_confirms(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = simulation.run("run-1")
    assert isinstance(present, ReportedRun)

    def forged(_run_id: str) -> ReportedRun:
        current = Simulation.run(simulation, "run-1")
        assert isinstance(current, ReportedRun)
        return replace(current, attempt=9, attempt_key="sim:17:9", state="running", others=(current,))

    monkeypatch.setattr(simulation, "run", forged)
    simulation.tick(5)
    assert simulation.driver.calls[:1] == ["prepare: none"]


def test_other_records_of_a_run_are_read_newest_first() -> None:
    series = [*record(0, "slurm:17:0", 100, "a:1"), *record(9, "slurm:17:9", 900, "b:1")]
    series += [*record(1, "slurm:17:1", 200, "c:1"), sample("training_step", 3, "c:1")]
    run = read_run("r", series)
    assert run is not None
    assert run.attempt_key == "slurm:17:9"
    assert [each.attempt_key for each in run.others] == ["slurm:17:1", "slurm:17:0"]


def test_a_database_that_lacks_restarts_restarts_nothing_until_it_is_adopted(
    simulation: Simulation, tmp_path: Path
) -> None:
    """Put back from a backup, it allowed five starts of a budget of three."""
    simulation.remembered["run-1"] = 2  # what Prometheus has seen on the page of the remediator
    simulation.tick(200, every=5)
    assert simulation.driver.calls == []
    [incident] = simulation.store.escalations()
    assert "has seen 2 restarts of the run on record, and the database has 0" in incident.reason
    assert main(["adopt", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]) == 0
    simulation.settle()
    assert simulation.our_starts == [0]
    assert main(["adopt", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]) == 1


def test_a_restart_that_only_the_job_remembers_is_missing_too(simulation: Simulation, tmp_path: Path) -> None:
    """Database and Prometheus were put back together, or the database is a new one."""
    simulation.settle()
    assert simulation.our_starts == [0]
    simulation.lose_database()
    simulation.remembered.clear()
    simulation.restart()
    simulation.cluster.hang()
    simulation.tick(200, every=5)
    assert simulation.our_starts == [0]
    [incident] = simulation.store.escalations()
    assert f"the run was restarted by incident {simulation.cluster.hold_of}" in incident.reason
    adopted = ["adopt", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]
    assert main(adopted) == 0
    simulation.settle()
    assert simulation.our_starts == [0, 1]
    simulation.cluster.hang()
    simulation.settle()
    assert simulation.our_starts == [0, 1, 2], "its own restarts are on record"
    assert main(adopted) == 1


@pytest.mark.parametrize("remembers", ["prometheus", "the job"])
def test_a_database_that_is_put_back_twice_is_noticed_twice(
    simulation: Simulation, tmp_path: Path, remembers: str
) -> None:
    """What was adopted stood for a number of restarts that the next ones did not exceed."""
    simulation.remembered["run-1"] = 2
    adopted = ["adopt", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]
    simulation.tick(200, every=5)
    assert main(adopted) == 0
    backup = tmp_path / "backup.sqlite3"
    with closing(sqlite3.connect(tmp_path / "state" / FILE)) as connection:
        connection.execute("VACUUM INTO ?", (str(backup),))
    simulation.settle()
    assert (simulation.our_starts, simulation.restarts("")) == ([0], {"run-1": 3})
    simulation.lose_database()
    backup.rename(tmp_path / "state" / FILE)
    if remembers == "the job":
        simulation.remembered["run-1"] = 2
    simulation.restart()
    simulation.cluster.hang()
    simulation.tick(200, every=5)
    assert simulation.our_starts == [0]
    [incident] = simulation.store.escalations()
    assert "adopt --run-id run-1" in incident.reason
    assert main(adopted) == 0
    simulation.settle()
    assert simulation.our_starts == [0, 1]


def test_a_remediator_that_has_all_its_restarts_on_record_is_not_held_back(simulation: Simulation) -> None:
    simulation.cluster.progress_after_start = False
    for _ in range(6):
        simulation.settle()
    assert simulation.our_starts == [0, 1, 2]
    assert simulation.remembered["run-1"] == 3
