"""`explain`: what was decided about a run, an alert or an incident, on which facts, and what one may do."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.cli import main, parser
from trainwarden_remediator.drivers.driver import JobState
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.store.explain import may_of, next_of


def explain(simulation: Simulation, tmp_path: Path, about: str, *options: str) -> int:
    simulation.close()
    return main(["explain", f"--state-dir={tmp_path / 'state'}", about, *options])


def test_a_run_that_pages_is_explained_with_what_a_person_may_do(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.driver.faults = ["refused"]
    simulation.tick(5)
    [incident] = simulation.store.of_run(RUN)
    assert explain(simulation, tmp_path, RUN) == 0
    shown = capsys.readouterr().out
    assert "the scheduler refused: permission denied" in shown
    assert "budget: 3 of 3 restarts left\n" in shown, "no restart was made"
    assert "state: ESCALATED, pages\n" in shown
    assert "next: Nothing before a person has acted. The run pages until it is acknowledged." in shown
    command = f"trainwarden-remediator ack --state-dir={tmp_path / 'state'} {incident.id}"
    assert f"you may: Act on the reason, then {command}, which ends the page." in shown
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", incident.id[:8]]) == 0, "an id may be cut"
    assert incident.id in capsys.readouterr().out
    assert main(["ack", f"--state-dir={tmp_path / 'state'}", incident.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"incident": incident.id, "run_id": RUN, "attempt": 0}]
    assert main(["ack", f"--state-dir={tmp_path / 'state'}", incident.id]) == 1
    assert f"{incident.id}: no such incident pages" in capsys.readouterr().err


def test_an_alert_that_waits_is_explained_with_what_it_waits_for(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.prometheus_down = True
    simulation.tick(2)
    assert explain(simulation, tmp_path, "TrainRunStalled") == 0
    assert f"alert TrainRunStalled of run {RUN}: waits: Prometheus is down" in capsys.readouterr().out
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", RUN, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["waits_for"] for each in shown["alerts"]] == ["Prometheus is down"]
    assert shown["incidents"] == []


def test_a_page_about_an_alert_that_waits_says_that_the_run_may_still_be_restarted(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.cluster.state = JobState.OTHER
    simulation.tick(1900, every=60)
    assert explain(simulation, tmp_path, RUN) == 0
    shown = capsys.readouterr().out
    assert "nothing could be done for 30 minutes: the scheduler reports job 17 as other" in shown
    assert (
        "next: Its alert goes on waiting: the run is restarted once nothing speaks against that any more. The run"
        in shown
    )
    assert "Nothing before a person has acted" not in shown


def test_an_incident_is_explained_with_its_cluster_for_others_may_use_the_same_run_id(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.cluster_name = "prod"
    simulation.tick(5)
    assert explain(simulation, tmp_path, RUN) == 0
    assert "  cluster: prod\n" in capsys.readouterr().out


def test_a_recovered_run_needs_nothing(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.tick(60)
    assert explain(simulation, tmp_path, "TrainRunStalled", "--json") == 0
    [incident] = json.loads(capsys.readouterr().out)["incidents"]
    assert (incident["state"], incident["next"]) == ("DONE", "Nothing: the run has recovered.")
    assert incident["you_may"] == "Nothing is needed."


def test_an_incident_in_every_state_is_explained_with_commands_that_can_be_pasted(
    simulation: Simulation, tmp_path: Path
) -> None:
    simulation.tick(5)
    [incident] = simulation.store.of_run(RUN)
    folder = tmp_path / "a folder"
    for state, kept in itertools.product(State, ("", "approval", "veto:300")):
        found = replace(incident, state=state, approval=kept)
        said = may_of(found, folder)
        for command in re.findall(r"trainwarden-remediator ([a-z]+ [^;,]+)", said):
            parsed = parser().parse_args(shlex.split(command.rstrip(".")))
            assert parsed.state_dir == folder
            assert getattr(parsed, "incident", None) in (None, incident.id)
        waits = state is State.PROPOSED and bool(kept)
        assert ("approve" in said) == waits, (state, kept)
        assert ("unless a person vetoes" in next_of(found)) == (waits and kept != "approval"), (state, kept)


def test_a_storm_is_explained_with_the_command_that_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulation = Simulation(tmp_path / "state", runs=6)
    simulation.tick(5)
    [page] = simulation.store.escalations()
    assert explain(simulation, tmp_path, page.id) == 0
    folder = f"--state-dir={tmp_path / 'state'}"
    assert f"you may: Remove the cause, then trainwarden-remediator resume {folder}" in capsys.readouterr().out
    simulation.close()


@pytest.mark.parametrize("scheduler", ["ray", "local"])
def test_what_a_person_may_do_is_said_in_words_of_the_scheduler(
    simulation: Simulation, tmp_path: Path, scheduler: str
) -> None:
    simulation.tick(5)
    [incident] = simulation.store.of_run(RUN)
    for state in State:
        assert not {"scancel", "scontrol"} & set(
            may_of(replace(incident, state=state, scheduler=scheduler), tmp_path).split()
        )


def test_a_storm_is_shown_with_the_runs_of_its_cluster_until_a_person_ends_it(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.tick(5)
    [incident] = simulation.store.of_run(RUN)
    for cluster in ("", "another"):
        simulation.store.switches.begin_storm(cluster, f"switch of {cluster or 'all'}", lambda _connection: None)
    assert explain(simulation, tmp_path, RUN) == 0
    shown = capsys.readouterr().out
    assert "switched: storm of everything by the remediator" in shown
    assert "another" not in shown
    assert main(["resume", f"--state-dir={tmp_path / 'state'}"]) == 0
    capsys.readouterr()
    assert main(["explain", f"--state-dir={tmp_path / 'state'}", incident.id]) == 0
    assert "switched" not in capsys.readouterr().out


@pytest.mark.parametrize("about", ["nobody", "'; DROP TABLE events; --", "%", "\x1b[2J"])
def test_what_is_not_on_record_gets_status_1(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str], about: str
) -> None:
    simulation.tick(2)
    assert explain(simulation, tmp_path, about) == 1
    error = capsys.readouterr().err
    assert "is on record" in error
    assert error.strip().isprintable()


def test_each_decision_call_and_answer_is_a_line_of_the_log_with_incident_attempt_and_job(
    simulation: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    simulation.tick(60)
    [incident] = simulation.store.of_run(RUN)
    lines = [(each.getMessage(), each.fields) for each in caplog.records if hasattr(each, "fields")]
    simulation.close()
    about_it = {"incident": incident.id, "run_id": RUN, "attempt": 0, "job_id": "17"}
    assert all(about_it.items() <= fields.items() for _, fields in lines)
    said = [text for text, _ in lines]
    assert said[0].startswith("restart: ")
    assert [text for text in said if text.startswith("call ") and "prepare" in text]
    assert [text for text in said if "answered: accepted" in text]
    assert lines[-1][1]["state"] == "DONE"


def test_a_person_freezes_a_run_and_it_is_not_restarted_until_unfrozen(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"--state-dir={tmp_path / 'state'}"
    assert main(["freeze", folder, f"--run-id={RUN}", "--reason=I look at it"]) == 0
    assert f"frozen: run {RUN}, until unfreeze" in capsys.readouterr().out
    simulation.tick(30)
    assert simulation.our_starts == []
    assert main(["explain", folder, RUN]) == 0
    assert f"switched: freeze of {RUN} by " in capsys.readouterr().out
    assert main(["unfreeze", folder, f"--run-id={RUN}"]) == 0
    assert main(["unfreeze", folder, f"--run-id={RUN}"]) == 1
    simulation.tick(60)
    assert simulation.our_starts == [0]
    assert main(["freeze", folder, "--all", "--for=x"]) == 2
    assert "--for: 'x' is no duration" in capsys.readouterr().err
    assert main(["freeze", folder, "--all", "--for=9999y"]) == 2
    assert "--for: '9999y': expected at most 365d, or no such flag" in capsys.readouterr().err
    assert main(["unfreeze", folder, "--all"]) == 1, "neither of them has frozen anything"
    simulation.close()


def test_what_stays_frozen_by_another_freeze_is_named_when_one_is_ended(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A freeze of all runs and that of one may be of two people: each is ended by its own command."""
    folder = f"--state-dir={tmp_path / 'state'}"
    simulation.tick()
    assert main(["freeze", folder, f"--run-id={RUN}", "--reason=I look at it"]) == 0
    capsys.readouterr()
    assert main(["unfreeze", folder, "--all"]) == 1
    said = capsys.readouterr().err
    assert "all runs: not frozen" in said
    assert f"run {RUN} is still frozen by " in said
    assert "I look at it" in said

    assert main(["freeze", folder, "--all"]) == 0
    capsys.readouterr()
    assert main(["unfreeze", folder, f"--run-id={RUN}", "--json"]) == 0
    shown = capsys.readouterr()
    assert [each["run_id"] for each in json.loads(shown.out)["still_frozen"]] == [None]
    assert "all runs are still frozen by " in shown.err
    assert main(["unfreeze", folder, "--all"]) == 0
    assert capsys.readouterr() == ("no longer frozen: all runs\n", "")
    simulation.close()


def test_a_user_without_a_name_may_freeze_as_well(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs as any uid."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert main(["freeze", f"--state-dir={tmp_path / 'state'}", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by"] == f"uid {os.getuid()}"
    simulation.tick(30)
    assert simulation.our_starts == []


def test_what_is_no_run_id_stands_for_no_run_and_not_for_all(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one is that of a variable that is not set."""
    folder = f"--state-dir={tmp_path / 'state'}"
    assert main(["freeze", folder, "--all"]) == 0
    for command, run_id in itertools.product(("freeze", "unfreeze", "ack", "adopt"), ("", "run 1", "../run-1")):
        with pytest.raises(SystemExit) as refused:
            main([command, folder, f"--run-id={run_id}"])
        assert refused.value.code == 2, (command, run_id)
        assert f"argument --run-id: run id {run_id!r} is not usable" in capsys.readouterr().err, command
    simulation.tick(30)
    assert simulation.our_starts == [], "all runs are frozen still"


def test_a_run_that_is_not_on_record_is_frozen_with_a_warning(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"--state-dir={tmp_path / 'state'}"
    assert main(["freeze", folder, "--run-id=run-l"]) == 0
    shown = capsys.readouterr()
    assert "frozen: run run-l" in shown.out
    assert "run run-l: nothing is on record about it yet: is its id right?" in shown.err
    assert main(["explain", folder, "run-l"]) == 1
    assert "switched: freeze of run-l by " in capsys.readouterr().out
    simulation.tick(5)
    assert main(["freeze", folder, f"--run-id={RUN}"]) == 0
    assert capsys.readouterr().err == ""
    simulation.close()
