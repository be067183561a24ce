"""A restarted run counts as recovered once it works as before, and as degraded where it works worse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.prometheus import PrometheusSample
from trainwarden.record.folder import write_json
from trainwarden_remediator.act.checks import Check, Figures, compare, settled
from trainwarden_remediator.incidents.incident import State, as_json
from trainwarden_remediator.observe.evidence import read_run
from trainwarden_remediator.observe.records import Records

BEFORE = Figures(step_seconds=0.5, loss=2.0, fast_network=True, world_size=8, checkpoint_step=40)
SAME = Figures(
    step_seconds=0.52, steps_timed=30, loss=2.2, fast_network=True, world_size=8, resumed_step=40, resumed_path="/c/40"
)


def _verdicts(before: Figures, after: Figures) -> dict[str, str]:
    return {each.name: each.verdict for each in compare(before, after)}


def test_a_run_that_works_as_before_passes_all() -> None:
    assert set(_verdicts(BEFORE, SAME).values()) == {"passed"}


@pytest.mark.parametrize(
    ("change", "name", "detail"),
    [
        ({"resumed_step": 20, "resumed_path": "/c/20"}, "checkpoint",
         "resumed from step 20, /c/20; its last checkpoint was of step 40"),
        ({"resumed_step": None, "resumed_path": ""}, "checkpoint",
         "it began anew, and its last checkpoint was of step 40"),
        ({"resumed_step": None, "resumed_path": None, "first_step": 1}, "checkpoint",
         "its first step was 1, and its last checkpoint of step 40"),
        ({"world_size": 4}, "world size", "4 ranks, 8 before"),
        ({"fast_network": False}, "network", "NCCL does not use the fast network in every process, and did before"),
        ({"step_seconds": 1.0, "steps_timed": 200}, "throughput", "50% of before: 1 s a step, 0.5 s before"),
        ({"loss": 3.5}, "loss", "3.5, 2 before"),
    ],
)  # fmt: skip
def test_what_is_worse_is_named_with_its_numbers(change: dict[str, object], name: str, detail: str) -> None:
    after = replace(SAME, **change)  # type: ignore[arg-type]  # each its own type
    assert [each for each in compare(BEFORE, after) if each.verdict == "worse"] == [Check(name, "worse", detail)]


def test_a_slow_start_is_waited_for_and_what_stays_open_is_unknown() -> None:
    slow = replace(SAME, step_seconds=1.0, steps_timed=30, fast_network=None, loss=None)
    checks = compare(BEFORE, slow)
    assert {each.name for each in checks if each.verdict == "pending"} == {"throughput", "network", "loss"}
    assert {each.name for each in settled(checks) if each.verdict == "unknown"} == {"throughput", "network", "loss"}


def test_what_was_not_known_before_holds_nothing_up() -> None:
    assert set(_verdicts(Figures(), Figures()).values()) == {"unknown"}


def test_a_larger_run_is_none_that_works_worse() -> None:
    assert _verdicts(BEFORE, replace(SAME, world_size=16))["world size"] == "passed"


def test_figures_come_from_prometheus_by_the_median_and_outlive_the_database() -> None:
    labels = {"run_id": "r", "instance": "a"}
    samples = [
        PrometheusSample({**labels, "__name__": "training_run_info", "attempt_key": "sim:1:0"}, 1.0),
        PrometheusSample({**labels, "__name__": "training_run_attempt"}, 0.0),
        PrometheusSample({**labels, "__name__": "training_step_duration_seconds", "quantile": "0.5"}, 0.25),
        PrometheusSample({**labels, "__name__": "training_step_duration_seconds", "quantile": "1"}, 9.0),
        PrometheusSample({**labels, "__name__": "training_nccl_transport_ok"}, 1.0),
    ]
    run = read_run("r", samples)
    assert run is not None
    assert run.figures == {"training_step_duration_seconds": 0.25, "training_nccl_transport_ok": 1.0}
    assert Figures.from_text(BEFORE.as_text()) == BEFORE


def test_the_record_states_what_an_attempt_resumed_from(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    attempts = [{"attempt": 1, "key": "sim:1:1", "resume_step": 41}]
    write_json(folder / "metadata.json", {"attempt_key": "sim:1:1", "world_size": 8, "attempts": attempts})
    write_json(folder / "resume.json", {"attempt_key": "sim:1:1", "path": "/c/40", "step": 40})
    found = {"world_size": 8, "first_step": 41, "resumed_step": 40, "resumed_path": "/c/40"}
    assert Records(tmp_path).figures("r", "sim:1:1") == found
    assert Records(tmp_path).figures("r", "sim:1:0") == {}
    assert Records(None).figures("r", "sim:1:1") == {}


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    made = Simulation(tmp_path / "state", two_phase=True)
    made.figures = {"training_step_duration_seconds": 0.5, "training_step_durations_observed": 512.0}
    yield made
    made.close()


def _until_ended(simulation: Simulation) -> None:
    while simulation.cluster.generation == 0:
        simulation.tick()


def test_it_is_not_recovered_before_enough_steps_were_timed(simulation: Simulation) -> None:
    _until_ended(simulation)
    simulation.figures = {"training_step_duration_seconds": 0.5, "training_step_durations_observed": 5.0}
    simulation.tick(60, every=5)
    assert [each.state for each in simulation.store.of_run("run-1")] == [State.VERIFYING]
    simulation.figures["training_step_durations_observed"] = 25.0
    simulation.tick()
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.degraded) == (State.DONE, False)
    checks = {each["name"]: each["verdict"] for each in incident.verified}
    assert checks == {
        "checkpoint": "unknown", "world size": "unknown", "network": "unknown", "throughput": "passed",
        "loss": "unknown",
    }  # fmt: skip
    assert as_json(incident, [])["checks"] == json.loads(incident.checks or "")


def test_a_run_that_is_slower_is_told_and_not_restarted_again(simulation: Simulation) -> None:
    _until_ended(simulation)
    simulation.figures = {"training_step_duration_seconds": 1.0, "training_step_durations_observed": 400.0}
    [incident] = simulation.settle()
    assert (incident.state, incident.degraded) == (State.DONE, True)
    [(_, events)] = simulation.store.with_events()
    assert events[-1].detail.startswith(
        "recovered, degraded: throughput worse: 50% of before: 1 s a step, 0.5 s before; attempt 1 runs at step"
    )
    assert simulation.our_starts == [0]


def test_what_stays_unknown_ends_the_verification_after_ten_minutes(simulation: Simulation) -> None:
    _until_ended(simulation)
    simulation.figures = {}
    simulation.tick(610, every=5)
    [incident] = simulation.store.of_run("run-1")
    assert (incident.state, incident.degraded) == (State.DONE, False)
