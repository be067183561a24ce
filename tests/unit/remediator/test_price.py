"""What a restart loses is a part of the decision; above a limit a person approves it, or may veto it in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.prometheus import PrometheusError, PrometheusSample
from trainwarden_remediator.cli import main
from trainwarden_remediator.decide.decide import AlertedFailure, Circumstances, Decision, Restart, decide
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import Alert, Incident, State
from trainwarden_remediator.incidents.price import Approval, Loss, PrometheusPrices
from trainwarden_remediator.metrics import GpuHours
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.policy import Policy, load_policy

LOSS = Loss(1000.0, 900.0, 12.3, 64.0)


def policy(**limits: Any) -> Policy:
    return replace(load_policy("default"), limits=Limits.model_validate(limits))


def decided(loss: Loss, **limits: Any) -> Decision:
    return decide(AlertedFailure("stall"), History({}), policy(**limits), 0.0, Circumstances(loss=loss))


def test_what_is_lost_is_a_part_of_the_decision_and_of_its_reason() -> None:
    decision = decided(LOSS)
    assert isinstance(decision, Restart)
    assert (decision.loss, decision.approval) == (LOSS, None)
    assert decision.reason == (
        "policy default restarts after every stall; its last reported checkpoint is of step 900: 100 steps are "
        "repeated, 12 GPU hours of work, each hour of waiting holds 64 GPUs"
    )
    ended = decided(replace(LOSS, ended=True))
    assert ended.reason.endswith("100 steps are repeated, 12 GPU hours of work are lost already")


@pytest.mark.parametrize(
    ("loss", "limits", "approval"),
    [
        (LOSS, {"approval_above_gpu_hours": 12.3}, None),
        (LOSS, {"approval_above_gpu_hours": 12.0}, Approval()),
        (LOSS, {"approval_above_gpu_hours": 12.0, "veto_seconds": 300}, Approval(300)),
        (replace(LOSS, gpu_hours=None), {"approval_above_gpu_hours": 1000.0}, Approval()),
        # Nothing is ended, so nothing more is lost.
        (replace(LOSS, ended=True), {"approval_above_gpu_hours": 0}, None),
        (replace(LOSS, gpu_hours=None, ended=True), {"approval_above_gpu_hours": 0}, None),
    ],
)
def test_an_expensive_restart_of_a_job_that_runs_needs_a_person(
    loss: Loss, limits: dict[str, float], approval: Approval | None
) -> None:
    decision = decided(loss, **limits)
    assert isinstance(decision, Restart)
    assert decision.approval == approval
    if approval is not None:
        assert ("300 s in which a person may veto" in decision.reason) == (approval.veto_seconds == 300)
        assert Approval.parse(str(approval)) == approval


class Prices:
    """A PriceSource with one answer."""

    def __init__(self, **known: float) -> None:
        self._known = known

    def of_run(self, _run_id: str) -> Mapping[str, float] | Unknown:
        return self._known


@pytest.fixture
def priced(tmp_path: Path) -> Iterator[Callable[..., Simulation]]:
    made: list[Simulation] = []

    def build(**limits: Any) -> Simulation:
        sim = Simulation(tmp_path, two_phase=True, policy=policy(approval_above_gpu_hours=5, **limits))
        made.append(sim)
        sim.prices = Prices(gpu_hours=12.0, gpus=64.0)
        sim.restart()
        sim.tick(5)
        return sim

    yield build
    for each in made:
        each.close()


def only(sim: Simulation) -> Incident:
    [incident] = sim.store.of_run(RUN)
    return incident


def pages(sim: Simulation) -> list[str]:
    return [each.reason for each in sim.store.escalations()]


def say(sim: Simulation, command: str) -> int:
    return main([command, "--state-dir", str(sim.folder), only(sim).id])


def test_without_an_approval_nothing_is_ended_and_a_person_is_paged(
    priced: Callable[..., Simulation], capsys: pytest.CaptureFixture[str]
) -> None:
    sim = priced()
    sim.clock.elapsed += 5 * 3600
    sim.tick(5)
    incident = only(sim)
    assert (incident.state, sim.driver.calls, incident.lost_gpu_hours) == (State.PROPOSED, [], 12.0)
    [reason] = pages(sim)
    assert "12 GPU hours, and more than 5 GPU hours need a person: trainwarden-remediator approve or veto" in reason
    assert say(sim, "approve") == 0
    assert f"approved: incident {incident.id}" in capsys.readouterr().out
    [done] = sim.settle()
    assert (done.state, len(sim.our_starts), pages(sim)) == (State.DONE, 1, [])
    assert say(sim, "veto") == 1
    assert "it waits for nobody: it is DONE" in capsys.readouterr().err


def test_an_incident_is_named_by_the_beginning_of_its_id_unless_others_begin_so(
    priced: Callable[..., Simulation], capsys: pytest.CaptureFixture[str]
) -> None:
    sim = priced()
    incident, folder = only(sim), f"--state-dir={sim.folder}"
    assert main(["approve", folder, incident.id[:3]]) == 1, "three letters are too few"
    assert "there is no such incident" in capsys.readouterr().err
    twin = incident.id[:4] + ("1" if incident.id[4] == "0" else "0") * 28
    sim.store.add(replace(incident, id=twin, run_id="run-2", attempt_key=None, state=State.SUPPRESSED))
    assert main([folder, "veto", incident.id[:4]]) == 2
    said = capsys.readouterr().err
    assert f"{incident.id} of run {RUN}, PROPOSED" in said
    assert f"{twin} of run run-2, SUPPRESSED" in said
    assert main([folder, "veto", incident.id[:5]]) == 0, "the folder may stand before the command"
    assert f"vetoed: incident {incident.id}" in capsys.readouterr().out


def test_a_veto_leaves_the_attempt_as_it_is(priced: Callable[..., Simulation]) -> None:
    sim = priced(veto_seconds=300)
    assert say(sim, "veto") == 0
    assert say(sim, "approve") == 1
    sim.clock.elapsed += 600
    sim.tick(20)
    incident = only(sim)
    assert (incident.state, sim.driver.calls, pages(sim)) == (State.SUPPRESSED, [], [])
    assert incident.reason.startswith("vetoed by ")


def test_a_veto_that_was_accepted_as_the_restart_began_ends_it_before_the_call(
    priced: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command had answered "vetoed", and the attempt was ended all the same."""
    sim = priced(veto_seconds=300)
    answers: list[int] = []

    def meanwhile(name: str) -> None:
        if name == "PROPOSED to CAPTURING: before":
            answers.append(say(sim, "veto"))
            assert sim._memory is not None
            sim._memory._known.clear()

    monkeypatch.setattr(sim.store.transactions, "_crashpoint", meanwhile)
    sim.clock.elapsed += 300
    sim.tick(20)
    assert answers == [0]
    assert (only(sim).state, sim.driver.calls) == (State.SUPPRESSED, [])
    assert only(sim).reason.startswith("vetoed by ")


def test_a_veto_counts_while_the_ranks_show_where_they_stand(priced: Callable[..., Simulation]) -> None:
    sim = priced(veto_seconds=300)
    sim.captures.seconds = 20
    sim.clock.elapsed += 300
    sim.tick(5)
    assert only(sim).state is State.CAPTURING
    assert say(sim, "approve") == 1, "it has begun"
    assert say(sim, "veto") == 0
    sim.tick(60)
    assert (only(sim).state, sim.driver.calls) == (State.SUPPRESSED, [])
    assert only(sim).reason.startswith("vetoed by ")


def test_after_an_approval_only_a_freeze_holds_the_restart_back(
    priced: Callable[..., Simulation], capsys: pytest.CaptureFixture[str]
) -> None:
    sim = priced()
    sim.captures.seconds = 20
    assert say(sim, "approve") == 0
    sim.tick(5)
    assert only(sim).state is State.CAPTURING
    assert say(sim, "veto") == 1
    assert "it was approved by " in (said := capsys.readouterr().err)
    assert said.endswith("; freeze holds it back\n")


def test_a_veto_comes_too_late_once_the_call_was_made(
    priced: Callable[..., Simulation], capsys: pytest.CaptureFixture[str]
) -> None:
    sim = priced(veto_seconds=300)
    sim.driver.faults = ["dropped"]
    sim.clock.elapsed += 300
    sim.tick(5)
    assert sim.driver.calls == ["prepare: dropped"]
    capsys.readouterr()
    assert say(sim, "veto") == 1
    assert f"it waits for nobody: it is {only(sim).state.value}" in capsys.readouterr().err


def _another(alert: Alert) -> Alert:
    return Alert({**alert.labels, "alertname": "TrainStartupHung"}, alert.starts_at)


@pytest.mark.parametrize("again", ["it fires anew", "another alert", "an alert that had joined"])
def test_a_veto_holds_whichever_alert_is_about_the_attempt(
    priced: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """A person may have stopped its ranks in a debugger; Prometheus and Alertmanager may be started again."""
    sim = priced(veto_seconds=300)
    alone = sim.alerts_now
    if again == "an alert that had joined":
        monkeypatch.setattr(sim, "alerts_now", lambda: [*alone(), *map(_another, alone())])
        sim.tick(2)
    assert say(sim, "veto") == 0
    sim.tick(5)
    if again == "it fires anew":
        sim.new_alerts()
    elif again == "another alert":
        monkeypatch.setattr(sim, "alerts_now", lambda: [*map(_another, alone())])
    sim.tick(400, every=5)
    assert (sim.driver.calls, pages(sim)) == ([], [])
    assert {each.state for each in sim.store.of_run(RUN)} == {State.SUPPRESSED}
    assert all(each.reason.startswith("vetoed by ") for each in sim.store.of_run(RUN))


def test_an_attempt_that_was_left_and_fails_again_is_for_a_person_and_one_that_has_ended_is_restarted(
    priced: Callable[..., Simulation],
) -> None:
    sim = priced(veto_seconds=300)
    assert say(sim, "veto") == 0
    sim.cluster.steps = True
    sim.tick(10)
    sim.cluster.hang()
    sim.new_alerts()
    sim.tick(400, every=5)
    [reason] = pages(sim)
    assert reason.startswith("this attempt fails again, and ")
    assert sim.driver.calls == []
    sim.cluster.crash()
    assert sim.settle()[-1].state is State.DONE
    assert (len(sim.our_starts), pages(sim)) == (1, [])


def test_a_countdown_goes_on_after_a_restart_of_the_remediator_and_then_it_begins(
    priced: Callable[..., Simulation],
) -> None:
    sim = priced(veto_seconds=300)
    sim.clock.elapsed += 200
    sim.tick(5)
    sim.restart()
    sim.clock.jump = 86400.0  # the wall clock counts for nothing
    sim.tick(5)
    assert (only(sim).state, sim.driver.calls) == (State.PROPOSED, [])
    sim.clock.elapsed += 90
    assert sim.settle()[0].state is State.DONE


def test_a_countdown_begins_anew_after_a_storm(priced: Callable[..., Simulation]) -> None:
    """Nobody looks at single restarts while all are held back: there is time to veto after that."""
    sim = priced(veto_seconds=300)
    sim.store.switches.begin_storm("", "rack 7 is without power", lambda _connection: None)
    sim.tick(5)
    sim.clock.elapsed += 4000
    sim.tick(5)
    sim.store.switches.end_storm("")
    sim.tick(280)
    assert (only(sim).state, sim.driver.calls) == (State.PROPOSED, [])
    sim.tick(30)
    assert sim.settle()[0].state is State.DONE


def test_a_run_that_recovers_meanwhile_needs_no_answer_any_more(priced: Callable[..., Simulation]) -> None:
    sim = priced()
    sim.cluster.step = sim.cluster.high_water = 60.0
    sim.tick(5)
    assert (only(sim).state, pages(sim), sim.driver.calls) == (State.SUPPRESSED, [], [])


def test_only_an_incident_that_waits_for_a_person_takes_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim = Simulation(tmp_path, two_phase=True)
    assert main(["approve", "--state-dir", str(tmp_path), "gone"]) == 1
    assert "gone: there is no such incident" in capsys.readouterr().err
    sim.close()


def test_hours_of_a_restart_that_was_withdrawn_at_the_last_moment_are_not_counted(tmp_path: Path) -> None:
    """Of one call: it is on record as to be made before it is known whether the run still needs it."""
    sim = Simulation(tmp_path, two_phase=False)
    sim.prices = Prices(gpu_hours=12.0, gpus=64.0)
    sim.restart()
    lost: list[float] = []

    def meanwhile(name: str) -> None:
        if name == "PREPARED to COMMITTED: after commit":
            sim.cluster.step = sim.cluster.high_water = 60.0
            lost.append(hours(sim)["lost"])

    sim.store.transactions._crashpoint = meanwhile
    sim.tick(90)
    assert [each.state for each in sim.store.of_run(RUN)] == [State.SUPPRESSED]
    assert (sim.our_starts, lost, hours(sim)["lost"]) == ([], [0.0], 0.0)
    sim.close()


def hours(sim: Simulation) -> dict[str, float]:
    families = GpuHours(sim.engine).families()
    return {
        family.name.removeprefix("trainwarden_remediator_gpu_hours_"): family.samples[0].value for family in families
    }


def test_hours_lost_and_saved_are_counted(priced: Callable[..., Simulation]) -> None:
    sim = priced()
    assert say(sim, "approve") == 0
    sim.settle()
    assert sim.store.of_run(RUN)[0].state is State.DONE
    values = hours(sim)
    assert values["lost"] == 12.0
    # 64 GPUs for somewhat less than half an hour.
    assert 30 < values["saved"] < 32


class Prometheus:
    """As much of a client as is asked; without samples it is down."""

    def __init__(self, *samples: tuple[str, str, float]) -> None:
        self._samples = samples

    def query(self, _query: str) -> list[PrometheusSample]:
        if not self._samples:
            raise PrometheusError("down")
        return [PrometheusSample({"__name__": name, "cluster": of}, value) for name, of, value in self._samples]


def test_the_price_is_that_of_the_cluster_by_the_recordings_of_goodput() -> None:
    recordings = (Path(__file__).parents[3] / "rules" / "recording" / "goodput.yml").read_text()
    hours, gpus = "run:training_restart_gpu_hours:current", "run:training_gpus:last"
    assert f"record: {hours}\n" in recordings
    assert f"record: {gpus}\n" in recordings
    prometheus = Prometheus((hours, "a", 3.0), (gpus, "a", 8.0), (hours, "b", 9.0), (gpus, "a", float("nan")))
    source = PrometheusPrices(prometheus, "a")  # type: ignore[arg-type]  # as much as is asked
    assert source.of_run(RUN) == {"gpu_hours": 3.0, "gpus": 8.0}
    assert PrometheusPrices(Prometheus()).of_run(RUN) == Unknown("down")  # type: ignore[arg-type]  # likewise
