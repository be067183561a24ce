"""A page ends when a person has taken over or nobody is needed: not by its age, a clock, or another attempt."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulation import Make, Simulation
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import FILE, open_database
from trainwarden_remediator.database.schema import VERSION
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.policies.policy_file import Implementation

POLICY_WITHOUT_A_BUDGET = Policy(
    "none-left", {"stall": Implementation(class_name="AlwaysRestartPolicy", max_retries=0)}
)


def pages(simulation: Simulation) -> None:
    simulation.driver.faults = ["refused"]
    simulation.settle()
    assert len(simulation.store.escalations()) == 1


def test_a_page_that_nobody_answers_stays(simulation: Simulation) -> None:
    pages(simulation)
    for _ in range(3):
        simulation.clock.elapsed += 86_400
        simulation.tick()
    simulation.restart()
    simulation.tick()
    assert len(simulation.store.escalations()) == 1


@pytest.mark.parametrize("jump", [-200_000.0, 200_000.0])
def test_no_jump_of_the_clock_ends_a_page(simulation: Simulation, jump: float) -> None:
    pages(simulation)
    simulation.clock.jump = jump
    simulation.tick(2)
    assert len(simulation.store.escalations()) == 1


def test_an_older_attempt_does_not_end_the_page_of_a_newer_one(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter of the newer attempt is away, and another host still shows the older one."""
    simulation.cluster.attempt, simulation.cluster.generation = 1, 1
    simulation.cluster.attempt_key, simulation.cluster.progress_after_start = "sim:17:1", False
    pages(simulation)
    present = simulation.run("run-1")
    assert isinstance(present, ReportedRun)
    older = replace(present, attempt=0, attempt_key="sim:17:0", high_water=900.0)
    monkeypatch.setattr(simulation, "run", lambda _run_id: older)
    simulation.tick(2)
    assert len(simulation.store.escalations()) == 1


def test_a_page_ends_when_the_job_is_cancelled_by_its_user(simulation: Simulation) -> None:
    pages(simulation)
    simulation.cluster.cancel()
    simulation.tick(2)
    assert simulation.store.escalations() == []


def test_a_person_acknowledges_the_pages_of_a_run(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages(simulation)
    assert main(["ack", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]) == 0
    assert "run-1" in capsys.readouterr().out
    assert simulation.store.escalations() == []
    [(incident, events)] = simulation.store.with_events("run-1")
    assert incident.state is State.ESCALATED
    assert events[-1].detail.startswith("acknowledged by ")
    assert main(["ack", "--state-dir", str(tmp_path / "state"), "--run-id", "run-1"]) == 1


def _goes_on_and_fails_again(simulation: Simulation, *, crash: bool = False) -> None:
    """The run makes steps by itself, hours later it fails once more: another alert about the same attempt."""
    simulation.cluster.steps = True
    simulation.tick(5)
    assert simulation.store.escalations() == [], "the run goes on by itself"
    simulation.clock.elapsed += 7200
    simulation.new_alerts()
    if crash:
        simulation.cluster.steps = False
        simulation.cluster.crash()
    else:
        simulation.cluster.hang()
    simulation.tick(70)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_run_that_goes_on_and_hangs_again_pages_again_for_the_same_reason(
    make: Make, tmp_path: Path, acknowledged: bool
) -> None:
    simulation = make(policy=POLICY_WITHOUT_A_BUDGET)
    simulation.tick(2)
    [page] = simulation.store.escalations()
    assert page.reason == "restart budget used up: 0 of 0 after a stall"
    if acknowledged:
        assert main(["ack", "--state-dir", str(tmp_path / "0"), "--run-id", "run-1"]) == 0
    _goes_on_and_fails_again(simulation)
    [again] = simulation.store.escalations()
    assert (again.id != page.id, again.reason) == (True, page.reason)
    simulation.new_alerts()
    simulation.tick(5)
    assert [each.id for each in simulation.store.escalations()] == [again.id], "it is one page as long as it hangs"


def test_a_page_that_a_person_has_taken_over_is_not_repeated_while_the_run_stands(make: Make, tmp_path: Path) -> None:
    simulation = make(policy=POLICY_WITHOUT_A_BUDGET)
    simulation.tick(2)
    assert main(["ack", "--state-dir", str(tmp_path / "0"), "--run-id", "run-1"]) == 0
    simulation.new_alerts()  # Prometheus was started again
    simulation.tick(5)
    assert simulation.store.escalations() == []


@pytest.mark.parametrize("crash", [False, True])
def test_an_attempt_that_was_handed_over_and_fails_again_pages(simulation: Simulation, crash: bool) -> None:
    """A second restart of one attempt is never decided: nobody would come to know that it needs one."""
    pages(simulation)
    _goes_on_and_fails_again(simulation, crash=crash)
    [again] = simulation.store.escalations()
    assert again.reason.startswith("this attempt fails again, and a restart of it was decided already: incident ")
    assert again.failure_mode == ("crash" if crash else "stall")
    assert simulation.our_starts == []


def test_patience_outlives_the_remediator(simulation: Simulation) -> None:
    """Restarted every 25 minutes, it pages after 30 nevertheless."""
    simulation.cluster.state = JobState.OTHER
    for _ in range(2):
        for _ in range(25):
            simulation.clock.elapsed += 60
            simulation.tick()
        simulation.restart()
    assert [each.reason for each in simulation.store.escalations()] == [
        "nothing could be done for 30 minutes: the scheduler reports job 17 as other"
    ]


def test_it_pages_for_an_alert_although_prometheus_never_answers(simulation: Simulation) -> None:
    simulation.alerts_now()
    simulation.prometheus_down = True
    for _ in range(40):
        simulation.clock.elapsed += 60
        simulation.tick()
    [incident] = simulation.store.escalations()
    assert incident.reason.startswith("nothing could be done for 30 minutes: ")
    assert incident.attempt == 0
    simulation.prometheus_down = False
    simulation.settle()
    assert simulation.our_starts == [0]
    assert simulation.store.escalations() == []


def test_a_database_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    open_database(tmp_path).dispose()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("ALTER TABLE incidents DROP COLUMN checkpoint_step")
        connection.execute("DROP TABLE timers")
        connection.execute("UPDATE about SET value = '1' WHERE key = 'schema'")
    connection.close()
    for _ in range(2):
        open_database(tmp_path).dispose()
    with sqlite3.connect(tmp_path / FILE) as connection:
        assert connection.execute("SELECT value FROM about WHERE key = 'schema'").fetchone() == (str(VERSION),)
        assert connection.execute("SELECT checkpoint_step FROM incidents").fetchall() == []
        assert connection.execute("SELECT * FROM timers").fetchall() == []
    connection.close()
